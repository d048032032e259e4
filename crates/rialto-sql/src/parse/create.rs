//! CREATE TABLE and CREATE INDEX.

use rialto::Residence;
use rialto::row::{COLUMNS_MAX, Column, ColumnType, INDEXES_MAX};
use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use sqlparser::ast::{self, DataType, ExactNumberInfo};

use super::{Name, Places, left_over};
use crate::error::{Result, SqlError, SqlState};

/// CREATE TABLE.
#[derive(Debug, Clone)]
pub struct CreateTable {
    /// The table's name.
    pub name: Name,
    /// Whether an existing table gives only a notice.
    pub if_not_exists: bool,
    /// The columns.
    pub columns: Vec<Column>,
    /// The primary key's columns.
    pub primary_key: Option<Vec<Name>>,
    /// The columns of each UNIQUE constraint.
    pub unique: Vec<Vec<Name>>,
    /// How full segments get, in percent.
    pub fill_percent: u8,
    /// Where it lives.
    pub residence: Residence,
    /// Which partitions its rows lie in, if the statement says so.
    pub placing: Option<Placing>,
}

/// Which partitions the rows of a table lie in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placing {
    /// By these columns.
    By(Vec<Name>),
    /// In all of them.
    Replicated,
}

/// CREATE INDEX.
#[derive(Debug, Clone)]
pub struct CreateIndex {
    /// The index's name; none means a name made of table and columns.
    pub name: Option<Name>,
    /// The table.
    pub table: Name,
    /// The columns.
    pub columns: Vec<Name>,
    /// Whether keys are unique.
    pub unique: bool,
    /// Whether an existing index gives only a notice.
    pub if_not_exists: bool,
}

pub(super) fn table(places: &Places<'_>, mut table: ast::CreateTable) -> Result<CreateTable> {
    let name = places.object(&table.name)?;
    let refused = [
        (table.or_replace, "CREATE OR REPLACE TABLE"),
        (table.temporary, "CREATE TEMPORARY TABLE"),
        (table.unlogged, "CREATE UNLOGGED TABLE"),
        (table.query.is_some(), "CREATE TABLE ... AS"),
        (table.like.is_some(), "CREATE TABLE (LIKE ...)"),
        (table.partition_by.is_some(), "PARTITION BY"),
        (table.partition_of.is_some(), "PARTITION OF"),
        (table.inherits.is_some(), "INHERITS"),
        (table.on_commit.is_some(), "ON COMMIT"),
    ];
    if let Some((_, what)) = refused.into_iter().find(|(found, _)| *found) {
        return Err(SqlError::unsupported(what).at(name.position));
    }
    let if_not_exists = std::mem::take(&mut table.if_not_exists);
    let Storage { fill_percent, residence, placing } = storage(std::mem::take(&mut table.table_options))?;
    let definitions = std::mem::take(&mut table.columns);
    let constraints = std::mem::take(&mut table.constraints);
    if definitions.len() > COLUMNS_MAX {
        let message = format!("tables can have at most {COLUMNS_MAX} columns");
        return Err(SqlError::new(SqlState::TooManyColumns, message).at(name.position));
    }
    left_over("CREATE TABLE", table == CreateTableBuilder::new(table.name.clone()).build())?;

    let mut answer = CreateTable {
        name,
        if_not_exists,
        columns: Vec::new(),
        primary_key: None,
        unique: Vec::new(),
        fill_percent,
        residence,
        placing,
    };
    for definition in definitions {
        column(places, definition, &mut answer)?;
    }
    for constraint in constraints {
        self::constraint(places, constraint, &mut answer)?;
    }
    check_index_count(answer.unique.len(), answer.name.position)?;
    // A column of the primary key takes no nulls, whether or not its definition says so.
    for key in answer.primary_key.iter().flatten() {
        match answer.columns.iter_mut().find(|column| column.name == key.text) {
            Some(column) => column.nullable = false,
            None => {
                let message = format!("column \"{}\" named in key does not exist", key.text);
                return Err(SqlError::new(SqlState::UndefinedColumn, message).at(key.position));
            }
        }
    }
    Ok(answer)
}

/// Refuses more secondary indexes than a table may have.
pub(crate) fn check_index_count(count: usize, position: Option<usize>) -> Result<()> {
    if count <= INDEXES_MAX {
        return Ok(());
    }
    let message = format!("tables can have at most {INDEXES_MAX} indexes beside the primary key");
    Err(SqlError::new(SqlState::LimitExceeded, message).at(position))
}

fn column(places: &Places<'_>, definition: ast::ColumnDef, table: &mut CreateTable) -> Result<()> {
    let name = places.name(&definition.name);
    if table.columns.iter().any(|column| column.name == name.text) {
        let message = format!("column \"{}\" specified more than once", name.text);
        return Err(SqlError::new(SqlState::DuplicateColumn, message).at(name.position));
    }
    let mut column = Column::nullable(name.text.clone(), column_type(&definition.data_type, name.position)?);
    for option in definition.options {
        let refuse = |what: &str| Err(SqlError::unsupported(what).at(name.position));
        if option.name.is_some() {
            return refuse("a named constraint");
        }
        match option.option {
            ast::ColumnOption::Null => {}
            ast::ColumnOption::NotNull => column.nullable = false,
            ast::ColumnOption::PrimaryKey(key) => {
                left_over("PRIMARY KEY", key.characteristics.is_none() && key.include.is_empty())?;
                set_primary_key(table, vec![name.clone()])?;
            }
            ast::ColumnOption::Unique(unique) => {
                left_over("UNIQUE", unique.characteristics.is_none() && unique.include.is_empty())?;
                table.unique.push(vec![name.clone()]);
            }
            ast::ColumnOption::Default(_) => return refuse("DEFAULT"),
            ast::ColumnOption::ForeignKey(_) => return refuse("REFERENCES"),
            ast::ColumnOption::Check(_) => return refuse("CHECK"),
            ast::ColumnOption::Generated { .. } => return refuse("GENERATED"),
            ast::ColumnOption::Collation(_) => return refuse("COLLATE"),
            other => return refuse(&format!("column option {other}")),
        }
    }
    table.columns.push(column);
    Ok(())
}

fn set_primary_key(table: &mut CreateTable, columns: Vec<Name>) -> Result<()> {
    if table.primary_key.is_some() {
        let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name.text);
        return Err(SqlError::new(SqlState::InvalidDefinition, message).at(columns[0].position));
    }
    table.primary_key = Some(columns);
    Ok(())
}

fn constraint(places: &Places<'_>, constraint: ast::TableConstraint, table: &mut CreateTable) -> Result<()> {
    match constraint {
        ast::TableConstraint::PrimaryKey(key) => {
            let plain = key.name.is_none()
                && key.index_name.is_none()
                && key.index_type.is_none()
                && key.include.is_empty()
                && key.index_options.is_empty()
                && key.characteristics.is_none();
            left_over("PRIMARY KEY", plain)?;
            set_primary_key(table, key_columns(places, key.columns)?)
        }
        ast::TableConstraint::Unique(unique) => {
            let plain = unique.name.is_none()
                && unique.index_name.is_none()
                && unique.index_type.is_none()
                && unique.include.is_empty()
                && unique.index_options.is_empty()
                && unique.characteristics.is_none()
                && unique.nulls_distinct == ast::NullsDistinctOption::None;
            left_over("UNIQUE", plain)?;
            let columns = key_columns(places, unique.columns)?;
            table.unique.push(columns);
            Ok(())
        }
        ast::TableConstraint::ForeignKey(_) => Err(SqlError::unsupported("FOREIGN KEY")),
        ast::TableConstraint::Check(_) => Err(SqlError::unsupported("CHECK")),
        _ => Err(SqlError::unsupported("this table constraint")),
    }
}

fn key_columns(places: &Places<'_>, columns: Vec<ast::IndexColumn>) -> Result<Vec<Name>> {
    let names = columns
        .into_iter()
        .map(|column| {
            let options = &column.column.options;
            if column.operator_class.is_some() {
                return Err(SqlError::unsupported("an operator class"));
            }
            if options.sort == Some(ast::OrderBySort::Desc) || options.nulls_first.is_some() {
                return Err(SqlError::unsupported(
                    "an index column with DESC or NULLS (indexes are read both ways)",
                ));
            }
            match column.column.expr {
                ast::Expr::Identifier(ident) => Ok(places.name(&ident)),
                _ => Err(SqlError::unsupported("an index on an expression")),
            }
        })
        .collect::<Result<Vec<_>>>();
    // The names still lie in memory for the parser's columns, which are many times as large.
    names.map(|mut names| {
        names.shrink_to_fit();
        names
    })
}

/// What WITH says of a table.
struct Storage {
    fill_percent: u8,
    residence: Residence,
    placing: Option<Placing>,
}

/// The residence that a value of the option means.
pub(super) fn residence(value: &str) -> Result<Residence> {
    value.to_ascii_lowercase().parse().map_err(|expected| {
        let message = format!("invalid value for option \"residence\": {expected}");
        SqlError::new(SqlState::InvalidParameterValue, message)
    })
}

/// `WITH (fillfactor = N, residence = 'disk', partition_by = 'a, b', replicated = true)`.
fn storage(options: ast::CreateTableOptions) -> Result<Storage> {
    let mut storage = Storage { fill_percent: 100, residence: Residence::Memory, placing: None };
    let options = match options {
        ast::CreateTableOptions::None => return Ok(storage),
        ast::CreateTableOptions::With(options) => options,
        _ => return Err(SqlError::unsupported("this table option")),
    };
    for option in options {
        let ast::SqlOption::KeyValue { key, value } = option else {
            return Err(SqlError::unsupported(format!("storage option {option}")));
        };
        let text = value.to_string();
        let text = text.trim_matches('\'');
        let refused = |message: String| SqlError::new(SqlState::InvalidParameterValue, message);
        match key.value.to_ascii_lowercase().as_str() {
            "fillfactor" => {
                let percent = text.parse().ok().filter(|percent| (10..=100).contains(percent));
                storage.fill_percent = percent.ok_or_else(|| {
                    refused(format!("value {text} out of bounds for option \"fillfactor\": give 10 to 100"))
                })?;
            }
            "residence" => {
                storage.residence = residence(text)?;
            }
            "partition_by" => {
                let names: Vec<Name> = text
                    .split(',')
                    .map(|name| Name { text: name.trim().to_owned(), position: None })
                    .filter(|name| !name.text.is_empty())
                    .collect();
                if names.is_empty() {
                    return Err(refused("option \"partition_by\" names no column".to_owned()));
                }
                place(&mut storage, Placing::By(names))?;
            }
            "replicated" => match text.to_ascii_lowercase().as_str() {
                "true" | "on" | "yes" | "1" => place(&mut storage, Placing::Replicated)?,
                "false" | "off" | "no" | "0" => {}
                _ => {
                    let message = format!("invalid value for boolean option \"replicated\": {text}");
                    return Err(refused(message));
                }
            },
            _ => return Err(SqlError::unsupported(format!("storage option {}", key.value))),
        }
    }
    Ok(storage)
}

fn place(storage: &mut Storage, placing: Placing) -> Result<()> {
    if storage.placing.replace(placing).is_some() {
        let message =
            "the rows of a table are placed by one of the options \"partition_by\" and \"replicated\"";
        return Err(SqlError::new(SqlState::InvalidParameterValue, message));
    }
    Ok(())
}

/// The column type that a type name means.
pub(crate) fn column_type(data_type: &DataType, position: Option<usize>) -> Result<ColumnType> {
    let numeric = |info: &ExactNumberInfo| match *info {
        ExactNumberInfo::None => {
            Err(SqlError::unsupported("numeric without precision and scale as a column type")
                .at(position)
                .hint("Write numeric(precision, scale)."))
        }
        ExactNumberInfo::Precision(precision) => decimal(precision, 0, position),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => decimal(precision, scale, position),
    };
    Ok(match data_type {
        DataType::Bool | DataType::Boolean => ColumnType::Bool,
        DataType::SmallInt(None) | DataType::Int2(None) => ColumnType::Int2,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => ColumnType::Int4,
        DataType::BigInt(None) | DataType::Int8(None) => ColumnType::Int8,
        DataType::DoublePrecision | DataType::Float8 => ColumnType::Float8,
        DataType::Double(ExactNumberInfo::None) | DataType::Float(ExactNumberInfo::None) => {
            ColumnType::Float8
        }
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info)?,
        DataType::Text => ColumnType::Text,
        DataType::Varchar(None) | DataType::CharacterVarying(None) | DataType::CharVarying(None) => {
            ColumnType::Text
        }
        DataType::Varchar(Some(_)) | DataType::CharacterVarying(Some(_)) | DataType::CharVarying(Some(_)) => {
            return Err(SqlError::unsupported("varchar with a length")
                .at(position)
                .hint("Write text, or char(n)."));
        }
        DataType::Char(length) | DataType::Character(length) => match length {
            None => ColumnType::Char(1),
            Some(ast::CharacterLength::IntegerLength { length, unit: None }) => ColumnType::Char(
                u16::try_from(*length).ok().filter(|length| *length > 0).ok_or_else(|| {
                    let message = format!("length {length} for type char has to be 1 to 65535");
                    SqlError::new(SqlState::InvalidParameterValue, message).at(position)
                })?,
            ),
            Some(_) => return Err(SqlError::unsupported("this length of char").at(position)),
        },
        DataType::Bytea => ColumnType::Bytes,
        DataType::Date => ColumnType::Date,
        DataType::Timestamp(None, ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone) => {
            ColumnType::Timestamp
        }
        other => {
            let name = other.to_string().to_lowercase();
            return Err(SqlError::unsupported(format!("type {name}")).at(position));
        }
    })
}

fn decimal(precision: u64, scale: i64, position: Option<usize>) -> Result<ColumnType> {
    match (u8::try_from(precision), u8::try_from(scale)) {
        (Ok(precision @ 1..=38), Ok(scale)) if scale <= precision => {
            Ok(ColumnType::Decimal { precision, scale })
        }
        _ => {
            let message = format!(
                "numeric({precision},{scale}): precision has to be 1 to 38, and scale 0 to the precision"
            );
            Err(SqlError::new(SqlState::InvalidParameterValue, message).at(position))
        }
    }
}

pub(super) fn index(places: &Places<'_>, index: ast::CreateIndex) -> Result<CreateIndex> {
    let table = places.object(&index.table_name)?;
    let refused = [
        (index.concurrently, "CREATE INDEX CONCURRENTLY"),
        (!index.include.is_empty(), "INCLUDE"),
        (index.predicate.is_some(), "a partial index"),
        (index.nulls_distinct.is_some(), "NULLS DISTINCT"),
        (!index.with.is_empty(), "CREATE INDEX with storage options"),
        (
            index.r#async || !index.index_options.is_empty() || !index.alter_options.is_empty(),
            "this form of CREATE INDEX",
        ),
        (!matches!(index.using, None | Some(ast::IndexType::BTree)), "CREATE INDEX USING other than btree"),
    ];
    if let Some((_, what)) = refused.into_iter().find(|(found, _)| *found) {
        return Err(SqlError::unsupported(what).at(table.position));
    }
    Ok(CreateIndex {
        name: index.name.as_ref().map(|name| places.object(name)).transpose()?,
        table,
        columns: key_columns(places, index.columns)?,
        unique: index.unique,
        if_not_exists: index.if_not_exists,
    })
}
