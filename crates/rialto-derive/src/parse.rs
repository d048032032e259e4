//! The struct and its attributes, read and checked.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, LitInt, LitStr, Result, Token, Type};

/// The most bytes of a name, and the most fields of a key that is a tuple: those of `rialto::row`.
const NAME_BYTES_MAX: usize = 63;
const KEY_FIELDS_MAX: usize = 6;
const DECIMAL_DIGITS_MAX: u8 = 38;

/// A record's struct.
pub(crate) struct RecordInput {
    pub(crate) name: Ident,
    pub(crate) table: String,
    pub(crate) fields: Vec<FieldInput>,
    pub(crate) indexes: Vec<IndexInput>,
}

/// A field of it.
pub(crate) struct FieldInput {
    pub(crate) member: Ident,
    pub(crate) column: String,
    pub(crate) ty: Type,
    pub(crate) kind: ColumnKind,
    pub(crate) is_key: bool,
    indexed: Vec<FieldIndex>,
}

/// How a field's column type is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ColumnKind {
    /// From the field's type.
    Default,
    /// char(n).
    Char(u16),
    /// decimal(precision,scale).
    Decimal(u8, u8),
}

/// A field's mention of an index.
struct FieldIndex {
    name: Option<String>,
    unique: bool,
    span: Span,
}

/// A secondary index.
#[derive(Debug, PartialEq)]
pub(crate) struct IndexInput {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) unique: bool,
}

impl RecordInput {
    /// Reads the struct; all that is wrong with it is one error.
    pub(crate) fn parse(input: &DeriveInput) -> Result<RecordInput> {
        let Data::Struct(data) = &input.data else {
            return Err(Error::new_spanned(
                &input.ident,
                "#[derive(Record)] is for structs: a row has columns",
            ));
        };
        let Fields::Named(named) = &data.fields else {
            return Err(Error::new_spanned(
                &input.ident,
                "#[derive(Record)] needs named fields: they name the columns",
            ));
        };
        if named.named.is_empty() {
            return Err(Error::new_spanned(
                &input.ident,
                "#[derive(Record)] needs at least one field: a table has a column",
            ));
        }
        if !input.generics.params.is_empty() {
            return Err(Error::new_spanned(
                &input.generics,
                "#[derive(Record)] takes no parameters: a table has one type for each column, and owns its values",
            ));
        }
        let mut errors = Errors::default();
        let mut table = None;
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("record")) {
            errors.keep(attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("table") {
                    return Err(
                        meta.error("expected `table = \"name\"` on the struct; the rest goes on its fields")
                    );
                }
                set_once(&mut table, name_value(&meta)?, &meta)
            }));
        }
        let table = table.unwrap_or_else(|| snake_case(&input.ident.unraw().to_string()));
        let mut fields: Vec<FieldInput> = Vec::new();
        for field in &named.named {
            let Some(parsed) = errors.keep(FieldInput::parse(field)) else { continue };
            if fields.iter().any(|other| other.column == parsed.column) {
                let message = format!("two fields name the column \"{}\"", parsed.column);
                errors.keep::<()>(Err(Error::new_spanned(field, message)));
            }
            fields.push(parsed);
        }
        if let Some(extra) = fields.iter().filter(|field| field.is_key).nth(KEY_FIELDS_MAX) {
            let message = format!("a record's key has at most {KEY_FIELDS_MAX} fields");
            errors.keep::<()>(Err(Error::new(extra.ty.span(), message)));
        }
        let indexes = errors.keep(group_indexes(&table, &fields)).unwrap_or_default();
        errors.finish()?;
        Ok(RecordInput { name: input.ident.clone(), table, fields, indexes })
    }
}

impl FieldInput {
    fn parse(field: &Field) -> Result<FieldInput> {
        let member = field.ident.clone().ok_or_else(|| Error::new_spanned(field, "a field needs a name"))?;
        let (mut column, mut kind, mut is_key, mut indexed) = (None, None, false, Vec::new());
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("record")) {
            attribute.parse_nested_meta(|meta| {
                let index = |unique| -> Result<FieldIndex> {
                    let name = if meta.input.peek(Token![=]) { Some(name_value(&meta)?) } else { None };
                    Ok(FieldIndex { name, unique, span: meta.path.span() })
                };
                match meta.path.get_ident().map(Ident::to_string).as_deref() {
                    Some("key") if is_key => Err(meta.error("`key` is given twice")),
                    Some("key") => {
                        is_key = true;
                        Ok(())
                    }
                    Some("index") => {
                        indexed.push(index(false)?);
                        Ok(())
                    }
                    Some("unique") => {
                        indexed.push(index(true)?);
                        Ok(())
                    }
                    Some("char") => set_once(&mut kind, ColumnKind::Char(char_length(&meta)?), &meta),
                    Some("decimal") => set_once(&mut kind, decimal_digits(&meta)?, &meta),
                    Some("name") => set_once(&mut column, name_value(&meta)?, &meta),
                    Some("table") => Err(meta.error("`table` goes on the struct")),
                    _ => Err(meta.error(
                        "expected one of `key`, `index`, `index = \"name\"`, `unique`, `unique = \"name\"`, \
                         `char = length`, `decimal(precision, scale)`, `name = \"column\"`",
                    )),
                }
            })?;
        }
        let column = match column {
            Some(column) => column,
            None => checked_name(member.unraw().to_string(), member.span())?,
        };
        let kind = kind.unwrap_or(ColumnKind::Default);
        Ok(FieldInput { member, column, ty: field.ty.clone(), kind, is_key, indexed })
    }
}

/// The indexes in the order in which the fields first mention them.
fn group_indexes(table: &str, fields: &[FieldInput]) -> Result<Vec<IndexInput>> {
    let mut indexes: Vec<IndexInput> = Vec::new();
    for field in fields {
        for mention in &field.indexed {
            let suffix = if mention.unique { "key" } else { "idx" };
            let name = match &mention.name {
                Some(name) => name.clone(),
                None => checked_name(format!("{table}_{}_{suffix}", field.column), mention.span)?,
            };
            match indexes.iter_mut().find(|index| index.name == name) {
                None => {
                    let (columns, unique) = (vec![field.column.clone()], mention.unique);
                    indexes.push(IndexInput { name, columns, unique });
                }
                Some(index) if index.unique != mention.unique => {
                    let message = format!("index \"{name}\" is `unique` on one field and `index` on another");
                    return Err(Error::new(mention.span, message));
                }
                Some(index) if index.columns.contains(&field.column) => {
                    return Err(Error::new(mention.span, format!("the field is in index \"{name}\" twice")));
                }
                Some(index) => index.columns.push(field.column.clone()),
            }
        }
    }
    Ok(indexes)
}

fn set_once<T>(slot: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>) -> Result<()> {
    if slot.is_some() {
        return Err(meta.error("given twice, or `char` beside `decimal`"));
    }
    *slot = Some(value);
    Ok(())
}

fn name_value(meta: &ParseNestedMeta<'_>) -> Result<String> {
    let name: LitStr = meta.value()?.parse()?;
    checked_name(name.value(), name.span())
}

fn checked_name(name: String, span: Span) -> Result<String> {
    match name.len() {
        0 => Err(Error::new(span, "a name cannot be empty")),
        1..=NAME_BYTES_MAX => Ok(name),
        length => {
            let message =
                format!("the name \"{name}\" has {length} bytes, and the limit is {NAME_BYTES_MAX}");
            Err(Error::new(span, message))
        }
    }
}

fn char_length(meta: &ParseNestedMeta<'_>) -> Result<u16> {
    let length: LitInt = meta.value()?.parse()?;
    length
        .base10_parse::<u16>()
        .ok()
        .filter(|length| *length > 0)
        .ok_or_else(|| Error::new(length.span(), format!("a char has 1 to {} characters", u16::MAX)))
}

fn decimal_digits(meta: &ParseNestedMeta<'_>) -> Result<ColumnKind> {
    let arguments;
    syn::parenthesized!(arguments in meta.input);
    let precision: LitInt = arguments.parse()?;
    arguments.parse::<Token![,]>()?;
    let scale: LitInt = arguments.parse()?;
    let digits = |literal: &LitInt| literal.base10_parse::<u8>().ok();
    let Some(digits_in_all) = digits(&precision).filter(|digits| (1..=DECIMAL_DIGITS_MAX).contains(digits))
    else {
        return Err(Error::new(precision.span(), format!("a decimal has 1 to {DECIMAL_DIGITS_MAX} digits")));
    };
    let Some(digits_behind) = digits(&scale).filter(|digits| *digits <= digits_in_all) else {
        let message = format!("this decimal has 0 to {digits_in_all} digits behind the point");
        return Err(Error::new(scale.span(), message));
    };
    if !arguments.is_empty() {
        return Err(arguments.error("expected `decimal(precision, scale)`"));
    }
    Ok(ColumnKind::Decimal(digits_in_all, digits_behind))
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut before_is_lower = false;
    let mut characters = name.chars().peekable();
    while let Some(character) = characters.next() {
        let next_is_lower = characters.peek().is_some_and(|next| next.is_lowercase());
        let begins_word = character.is_uppercase() && (before_is_lower || next_is_lower);
        if begins_word && !snake.is_empty() && !snake.ends_with('_') {
            snake.push('_');
        }
        before_is_lower = character.is_lowercase() || character.is_numeric();
        snake.extend(character.to_lowercase());
    }
    snake
}

/// Errors put together, so that one build shows all of them.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        match (result, &mut self.0) {
            (Ok(value), _) => return Some(value),
            (Err(error), Some(errors)) => errors.combine(error),
            (Err(error), none) => *none = Some(error),
        }
        None
    }

    fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn messages(input: DeriveInput) -> Vec<String> {
        match RecordInput::parse(&input) {
            Ok(_) => vec![],
            Err(error) => error.into_iter().map(|error| error.to_string()).collect(),
        }
    }

    #[test]
    fn fields_are_grouped_into_indexes() {
        let record = RecordInput::parse(&parse_quote! {
            struct OrderLine {
                #[record(key, index = "by_item")]
                order_id: i64,
                #[record(key)]
                r#type: i16,
                #[record(unique, index = "by_item", char = 8, name = "item")]
                item_name: String,
                #[record(decimal(12, 2))]
                #[record(index)]
                price: Decimal,
            }
        });
        let record = record.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(record.table, "order_line");
        let columns: Vec<_> = record.fields.iter().map(|field| (field.column.as_str(), field.kind)).collect();
        let default = ColumnKind::Default;
        assert_eq!(columns[..2], [("order_id", default), ("type", default)]);
        assert_eq!(columns[2..], [("item", ColumnKind::Char(8)), ("price", ColumnKind::Decimal(12, 2))]);
        let index = |name: &str, columns: &[&str], unique| IndexInput {
            name: name.into(),
            columns: columns.iter().map(|column| column.to_string()).collect(),
            unique,
        };
        assert_eq!(
            record.indexes,
            [
                index("by_item", &["order_id", "item"], false),
                index("order_line_item_key", &["item"], true),
                index("order_line_price_idx", &["price"], false),
            ]
        );
    }

    #[test]
    fn each_mistake_has_its_message() {
        let starts: Vec<(Vec<String>, &str)> = vec![
            (
                messages(parse_quote!(
                    enum E {
                        A,
                    }
                )),
                "#[derive(Record)] is for structs",
            ),
            (
                messages(parse_quote!(
                    struct T(i64);
                )),
                "#[derive(Record)] needs named fields",
            ),
            (
                messages(parse_quote!(
                    struct T {}
                )),
                "#[derive(Record)] needs at least one field",
            ),
            (
                messages(parse_quote!(
                    struct T<'a> {
                        a: &'a str,
                    }
                )),
                "#[derive(Record)] takes no parameters",
            ),
            (
                messages(parse_quote!(
                    #[record(tabel = "t")]
                    struct T {
                        a: i64,
                    }
                )),
                "expected `table = \"name\"`",
            ),
            (
                messages(parse_quote!(
                    #[record(table = "")]
                    struct T {
                        a: i64,
                    }
                )),
                "a name cannot be empty",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        #[record(keys)]
                        a: i64,
                    }
                )),
                "expected one of `key`",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        #[record(key, key)]
                        a: i64,
                    }
                )),
                "`key` is given twice",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        #[record(table = "t")]
                        a: i64,
                    }
                )),
                "`table` goes on the struct",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        #[record(char = 0)]
                        a: String,
                    }
                )),
                "a char has 1 to 65535",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        #[record(char = 9, decimal(1, 0))]
                        a: String,
                    }
                )),
                "given twice",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        #[record(decimal(39, 0))]
                        a: Decimal,
                    }
                )),
                "a decimal has 1 to 38",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        #[record(decimal(4, 5))]
                        a: Decimal,
                    }
                )),
                "this decimal has 0 to 4",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        a: i64,
                        #[record(name = "a")]
                        b: i64,
                    }
                )),
                "two fields name",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        #[record(index = "i")]
                        a: i64,
                        #[record(unique = "i")]
                        b: i64,
                    }
                )),
                "index \"i\" is",
            ),
            (
                messages(parse_quote!(
                    struct T {
                        #[record(index, index)]
                        a: i64,
                    }
                )),
                "the field is in index \"t_a_idx\" twice",
            ),
        ];
        for (found, expected) in starts {
            assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?} for {expected}");
        }
        let two = messages(parse_quote!(
            struct T {
                #[record(a)]
                a: i64,
                #[record(b)]
                b: i64,
            }
        ));
        assert_eq!(two.len(), 2, "one build shows all mistakes");
    }

    #[test]
    fn struct_names_become_table_names() {
        for (name, table) in
            [("Account", "account"), ("OrderLine", "order_line"), ("HTTPLog2", "http_log2"), ("A", "a")]
        {
            assert_eq!(snake_case(name), table);
        }
    }
}
