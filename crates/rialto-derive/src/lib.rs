//! `#[derive(Record)]`: a Rust struct as the rows of a table of [Rialto](../rialto/index.html).
//!
//! `lib.rs` writes the code, `parse.rs` reads the struct and its attributes and says what is wrong with them.

mod parse;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, parse_macro_input};

use parse::{ColumnKind, FieldInput, RecordInput};

/// Implements `rialto::row::Record`: each field is a column, in order; the table's name is the struct's in snake case.
///
/// Fields are bool, i16, i32, i64, f64, `Decimal`, `String`, `Vec<u8>`, `[u8; N]`, `Date`, `Timestamp`, and `Option` of
/// one of them for a nullable column.
///
/// On the struct:
/// - `#[record(table = "accounts")]` gives the table's name.
///
/// On a field:
/// - `#[record(key)]`: part of the primary key, in the order of the fields. Without any, rows have hidden numbers.
/// - `#[record(index)]`, `#[record(unique)]`: a secondary index of this column, named `{table}_{column}_idx` or
///   `{table}_{column}_key`.
/// - `#[record(index = "name")]`, `#[record(unique = "name")]`: the same with a name; fields that give one name share
///   one index, in the order of the fields. May be given more than once.
/// - `#[record(char = 20)]`: char(20), of a `String`.
/// - `#[record(decimal(12, 2))]`: decimal(12,2), of a `Decimal`, which needs it.
/// - `#[record(name = "column")]` gives the column's name.
///
/// `rialto::row::Record` has an example.
#[proc_macro_derive(Record, attributes(record))]
pub fn derive_record(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    match RecordInput::parse(&input) {
        Ok(record) => implement(&record).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

fn implement(record: &RecordInput) -> TokenStream {
    let RecordInput { name, table, fields, indexes } = record;
    let columns = fields.iter().map(column);
    let key_fields: Vec<&FieldInput> = fields.iter().filter(|field| field.is_key).collect();
    let key_columns = key_fields.iter().map(|field| &field.column);
    let key_types: Vec<_> = key_fields.iter().map(|field| &field.ty).collect();
    let key_type = match key_types.as_slice() {
        [] => quote!(u64),
        [one] => quote!(#one),
        several => quote!((#(#several),*)),
    };
    let key_checks = key_types.iter().map(|ty| {
        quote_spanned! {ty.span()=>
            const _: () = assert!(
                !<#ty as ::rialto::row::Field>::NULLABLE,
                "a #[record(key)] field cannot be an Option: primary keys take no NULL"
            );
        }
    });
    let indexes = indexes.iter().map(|index| {
        let (name, columns, unique) = (&index.name, &index.columns, index.unique);
        quote! { (::std::string::String::from(#name), ::std::vec![#(#columns),*], #unique) }
    });
    let puts = fields.iter().map(|field| {
        let (member, ty) = (&field.member, &field.ty);
        quote_spanned! {ty.span()=> row.put(<#ty as ::rialto::row::Field>::to_ref(&self.#member))?; }
    });
    let reads = fields.iter().enumerate().map(|(position, field)| {
        let (member, ty) = (&field.member, &field.ty);
        quote_spanned! {ty.span()=> #member: row.read::<#ty>(#position)?, }
    });
    quote! {
        #[automatically_derived]
        impl ::rialto::row::Record for #name {
            const TABLE: &'static str = #table;

            type Key = #key_type;

            fn columns() -> ::std::vec::Vec<::rialto::row::Column> {
                ::std::vec![#(#columns),*]
            }

            fn primary_key() -> ::std::vec::Vec<&'static str> {
                ::std::vec![#(#key_columns),*]
            }

            fn indexes() -> ::std::vec::Vec<(::std::string::String, ::std::vec::Vec<&'static str>, bool)> {
                ::std::vec![#(#indexes),*]
            }

            fn encode(
                &self,
                schema: &::rialto::row::Schema,
                out: &mut ::std::vec::Vec<u8>,
            ) -> ::rialto::Result<()> {
                let mut row = ::rialto::row::RowEncoder::new(schema, out);
                #(#puts)*
                row.finish()
            }

            fn decode(row: ::rialto::row::RowView<'_>) -> ::rialto::Result<Self> {
                ::std::result::Result::Ok(Self { #(#reads)* })
            }
        }

        #(#key_checks)*
    }
}

fn column(field: &FieldInput) -> TokenStream {
    let FieldInput { column, ty, .. } = field;
    let column_type = match field.kind {
        ColumnKind::Default => quote_spanned! {ty.span()=> <#ty as ::rialto::row::DefaultType>::TYPE },
        ColumnKind::Char(length) => quote_spanned! {ty.span()=> {
            fn is_char_field<T: ::rialto::row::CharField>() {}
            is_char_field::<#ty>();
            ::rialto::row::ColumnType::Char(#length)
        }},
        ColumnKind::Decimal(precision, scale) => quote_spanned! {ty.span()=> {
            fn is_decimal_field<T: ::rialto::row::DecimalField>() {}
            is_decimal_field::<#ty>();
            ::rialto::row::ColumnType::Decimal { precision: #precision, scale: #scale }
        }},
    };
    quote_spanned! {ty.span()=>
        ::rialto::row::Column {
            name: ::std::string::String::from(#column),
            ty: #column_type,
            nullable: <#ty as ::rialto::row::Field>::NULLABLE,
        }
    }
}
