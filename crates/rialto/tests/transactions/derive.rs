//! `#[derive(Record)]` from a user's view.

use std::sync::Arc;

use rialto::row::{
    Column, ColumnType, Date, Decimal, IntoKey, Key, Record, Row, RowView, Schema, Timestamp, Value,
    WhichIndex, fits, schema_of,
};
use rialto::{Error, IndexId};

#[derive(Record, Debug, Clone, PartialEq)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    branch: i32,
    #[record(key)]
    id: i64,
    #[record(decimal(12, 2), index)]
    balance: Decimal,
    #[record(char = 20, index = "by_owner")]
    owner: Option<String>,
    #[record(index = "by_owner")]
    opened: Date,
    #[record(unique)]
    r#ref: [u8; 4],
    #[record(name = "is_open")]
    open: bool,
    limit: Option<f64>,
    note: String,
    photo: Vec<u8>,
    class: i16,
    changed: Option<Timestamp>,
}

#[derive(Record, Debug, PartialEq)]
struct AuditLine {
    text: String,
}

fn account() -> Account {
    Account {
        branch: 3,
        id: 7,
        balance: "12.5".parse().unwrap(),
        owner: Some("Ada".into()),
        opened: "1852-11-27".parse().unwrap(),
        r#ref: *b"abcd",
        open: true,
        limit: None,
        note: "first \0 of all".into(),
        photo: vec![0, 1, 2],
        class: -1,
        changed: Some(Timestamp(1)),
    }
}

fn schema() -> Schema {
    let mut next = 10;
    schema_of::<Account>(|_| {
        next += 1;
        IndexId(next)
    })
    .unwrap()
}

#[test]
fn a_struct_names_its_table_columns_and_indexes() {
    let schema = schema();
    assert_eq!(Account::TABLE, "accounts");
    assert_eq!(AuditLine::TABLE, "audit_line");
    let decimal = ColumnType::Decimal { precision: 12, scale: 2 };
    let expected = [
        Column::new("branch", ColumnType::Int4),
        Column::new("id", ColumnType::Int8),
        Column::new("balance", decimal),
        Column::nullable("owner", ColumnType::Char(20)),
        Column::new("opened", ColumnType::Date),
        Column::new("ref", ColumnType::Bytes),
        Column::new("is_open", ColumnType::Bool),
        Column::nullable("limit", ColumnType::Float8),
        Column::new("note", ColumnType::Text),
        Column::new("photo", ColumnType::Bytes),
        Column::new("class", ColumnType::Int2),
        Column::nullable("changed", ColumnType::Timestamp),
    ];
    assert_eq!(schema.columns(), expected);
    assert_eq!(schema.primary_key(), Some(&[0, 1][..]));
    let indexes: Vec<_> = schema
        .indexes()
        .iter()
        .map(|index| (index.id.0, index.name.as_str(), &index.columns[..], index.unique))
        .collect();
    assert_eq!(
        indexes,
        [
            (11, "accounts_balance_idx", &[2][..], false),
            (12, "by_owner", &[3, 4][..], false),
            (13, "accounts_ref_key", &[5][..], true)
        ]
    );
    fits::<Account>(&schema).unwrap();
}

#[test]
fn a_struct_is_a_row_and_comes_back() {
    let (schema, account) = (schema(), account());
    let mut bytes = Vec::new();
    account.encode(&schema, &mut bytes).unwrap();
    let view = RowView::validate(&schema, &bytes).unwrap();
    assert_eq!(Account::decode(view), Ok(account));
    let row = Row::new(Arc::new(schema), bytes);
    assert_eq!(row.get("balance"), Ok(Value::Decimal("12.50".parse().unwrap())));
    assert_eq!(row.get("owner"), Ok(Value::Text(format!("{:<20}", "Ada"))));
    assert_eq!(row.read::<String>("owner"), Ok("Ada".to_owned()));
    assert_eq!(row.read::<Option<f64>>("limit"), Ok(None));
}

#[test]
fn the_key_is_a_tuple_of_the_key_fields() {
    let (schema, account) = (schema(), account());
    let key: <Account as Record>::Key = (3i32, 7i64);
    let (mut typed, mut of_row, mut bytes) = (Key::new(), Key::new(), Vec::new());
    key.encode_into(schema.key_shape(WhichIndex::Primary), &mut typed).unwrap();
    account.encode(&schema, &mut bytes).unwrap();
    schema.primary_key_of_row(&bytes, 0, &mut of_row);
    assert_eq!(typed, of_row);
    let row_number: <AuditLine as Record>::Key = 1u64;
    let schema = schema_of::<AuditLine>(|_| IndexId(1)).unwrap();
    row_number.encode_into(schema.key_shape(WhichIndex::Primary), &mut typed).unwrap();
    assert_eq!(*typed, 1u64.to_be_bytes());
}

#[test]
fn a_value_that_does_not_fit_its_column_is_an_error() {
    let schema = schema();
    let mut bytes = Vec::new();
    let long = Account { owner: Some("x".repeat(21)), ..account() };
    assert!(matches!(
        long.encode(&schema, &mut bytes),
        Err(Error::StringTooLong { length: 21, limit: 20, .. })
    ));
    let fine = Account { balance: "0.001".parse().unwrap(), ..account() };
    assert!(matches!(fine.encode(&schema, &mut bytes), Err(Error::OutOfRange { .. })));
    let large = Account { photo: vec![1; 40_000], ..account() };
    assert!(matches!(large.encode(&schema, &mut bytes), Err(Error::RowTooLong { limit: 32_000, .. })));
    assert!(bytes.is_empty());
}

#[test]
fn a_record_that_does_not_fit_says_where() {
    let reason = |change: fn(&mut Vec<Column>, &mut Option<Vec<usize>>)| {
        let (mut columns, mut key) = (schema().columns().to_vec(), Some(vec![0, 1]));
        change(&mut columns, &mut key);
        let table = Schema::new("accounts", columns, key, vec![]).unwrap();
        fits::<Account>(&table).unwrap_err().to_string()
    };
    assert_eq!(
        reason(|columns, _| columns[2].ty = ColumnType::Decimal { precision: 12, scale: 3 }),
        "record \"Account\" does not fit table \"accounts\": column 3 of the table is \"balance\" decimal(12,3) \
         NOT NULL, but that field of the record is \"balance\" decimal(12,2) NOT NULL"
    );
    assert_eq!(
        reason(|columns, _| columns[4].nullable = true),
        "record \"Account\" does not fit table \"accounts\": column 5 of the table is \"opened\" date, but that field \
         of the record is \"opened\" date NOT NULL"
    );
    assert_eq!(
        reason(|columns, _| columns.truncate(11)),
        "record \"Account\" does not fit table \"accounts\": column 12 of the table is none, but that field of the \
         record is \"changed\" timestamp"
    );
    assert_eq!(
        reason(|_, key| *key = Some(vec![1, 0])),
        "record \"Account\" does not fit table \"accounts\": the primary key of the table is (id, branch), but that \
         of the record is (branch, id)"
    );
    assert!(reason(|_, key| *key = None).contains("the primary key of the table is none"));
}
