//! Properties of rows and keys, on random tables. `RIALTO_SEED` replays a run, `RIALTO_TEST_SECONDS` bounds each test.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::*;
use crate::io::Random;
use crate::{Error, IndexId};

type Outcome = Result<(), TestCaseError>;

/// Checks a property on random inputs until the time is over.
fn check<S: Strategy>(strategy: S, property: impl Fn(S::Value) -> Outcome)
where
    S::Value: Debug,
{
    let seed = Random::seed_from_environment();
    // The properties are one suite, whose tests share the time.
    let limit = Random::test_time_from_environment() / 8;
    let start = Instant::now();
    for round in 0u64.. {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&round.to_le_bytes());
        let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        if let Err(error) = runner.run(&strategy, &property) {
            panic!("round {round} of RIALTO_SEED={seed}: {error}");
        }
        if start.elapsed() >= limit {
            break;
        }
    }
}

fn any_type() -> impl Strategy<Value = ColumnType> {
    prop_oneof![
        Just(ColumnType::Bool),
        Just(ColumnType::Int2),
        Just(ColumnType::Int4),
        Just(ColumnType::Int8),
        Just(ColumnType::Float8),
        (1..=38u8).prop_flat_map(|precision| {
            (0..=precision).prop_map(move |scale| ColumnType::Decimal { precision, scale })
        }),
        Just(ColumnType::Text),
        (1..8u16).prop_map(ColumnType::Char),
        Just(ColumnType::Bytes),
        Just(ColumnType::Date),
        Just(ColumnType::Timestamp),
    ]
}

/// Short texts of few characters, so that prefixes and equal texts are common.
fn any_text(length: usize) -> impl Strategy<Value = String> {
    let character = prop::sample::select(vec!['\0', '\u{1}', '\u{2}', ' ', 'a', 'b', 'ß', '€', '\u{10ffff}']);
    prop_oneof![
        4 => prop::collection::vec(character, 0..=length.min(4)).prop_map(|text| text.into_iter().collect()),
        1 => prop::collection::vec(any::<char>(), 0..=length).prop_map(|text| text.into_iter().collect()),
    ]
}

fn any_value(ty: ColumnType, nullable: bool) -> BoxedStrategy<Value> {
    macro_rules! integer {
        ($type:ty, $variant:expr) => {
            prop_oneof![
                any::<$type>().boxed(),
                prop::sample::select(vec![<$type>::MIN, -1, 0, 1, 255, 256, <$type>::MAX]).boxed()
            ]
            .prop_map($variant)
            .boxed()
        };
    }
    let value = match ty {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Int2 => integer!(i16, Value::Int2),
        ColumnType::Int4 => integer!(i32, Value::Int4),
        ColumnType::Int8 => integer!(i64, Value::Int8),
        ColumnType::Date => integer!(i32, Value::Date),
        ColumnType::Timestamp => integer!(i64, Value::Timestamp),
        ColumnType::Float8 => {
            let edges =
                vec![f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0, 5e-324];
            let bits = any::<u64>().prop_map(f64::from_bits);
            prop_oneof![bits.boxed(), prop::sample::select(edges).boxed()].prop_map(Value::Float8).boxed()
        }
        ColumnType::Decimal { precision, scale } => {
            let limit = 10i128.pow(precision.into());
            prop_oneof![(-limit + 1..limit).boxed(), (-9i128..10).boxed(), Just(limit - 1).boxed()]
                .prop_map(move |unscaled| Value::Decimal(Decimal::new(unscaled, scale).unwrap()))
                .boxed()
        }
        ColumnType::Text => any_text(12).prop_map(Value::Text).boxed(),
        ColumnType::Char(length) => any_text(length.into()).prop_map(Value::Text).boxed(),
        ColumnType::Bytes => prop_oneof![
            prop::collection::vec(0..3u8, 0..5).boxed(),
            prop::collection::vec(any::<u8>(), 0..20).boxed()
        ]
        .prop_map(Value::Bytes)
        .boxed(),
    };
    if nullable { prop_oneof![3 => value, 1 => Just(Value::Null)].boxed() } else { value }
}

/// A table with one secondary index, and two rows of it.
#[derive(Clone)]
struct Table {
    schema: Arc<Schema>,
    rows: [Vec<Value>; 2],
}

impl Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns: Vec<String> = self
            .schema
            .columns()
            .iter()
            .map(|column| format!("{} {:?}", column.ty, column.nullable))
            .collect();
        write!(f, "{columns:?} key {:?}", self.schema.primary_key())?;
        write!(f, " index {:?} rows {:?}", self.schema.indexes(), self.rows)
    }
}

impl Table {
    fn encode(&self, row: usize) -> Vec<u8> {
        encoded(&self.schema, &self.rows[row])
    }
}

fn encoded(schema: &Schema, values: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(schema, values, &mut bytes).unwrap();
    bytes
}

fn any_table() -> impl Strategy<Value = Table> {
    let columns = prop::collection::vec((any_type(), any::<bool>()), 1..12);
    (columns, any::<prop::sample::Index>(), any::<bool>(), any::<u64>()).prop_flat_map(
        |(types, first, unique, picks)| {
            let columns: Vec<Column> = types
                .iter()
                .enumerate()
                .map(|(at, (ty, nullable))| Column { name: format!("c{at}"), ty: *ty, nullable: *nullable })
                .collect();
            let count = columns.len();
            let first = first.index(count);
            let picked = |bit: usize| picks >> bit & 1 == 1;
            // The key begins at a random column and takes a random choice of the columns behind it.
            let around = (0..count).map(|at| (first + at) % count);
            let key: Vec<usize> = around.clone().filter(|at| !columns[*at].nullable && picked(*at)).collect();
            let index: Vec<usize> = around.filter(|at| *at == first || picked(at + 32)).collect();
            let index = IndexDef { id: IndexId(7), name: "by_some".into(), columns: index, unique };
            let key = Some(key).filter(|key| !key.is_empty());
            let schema = Arc::new(Schema::new("t", columns, key, vec![index]).unwrap());
            let row: Vec<_> = types.iter().map(|(ty, nullable)| any_value(*ty, *nullable)).collect();
            // Rows that share many fields make comparisons reach the later columns of a key.
            let same = prop::collection::vec(any::<bool>(), count);
            (row.clone(), row, same).prop_map(move |(first, mut second, same)| {
                for (at, same) in same.into_iter().enumerate() {
                    if same {
                        second[at] = first[at].clone();
                    }
                }
                Table { schema: schema.clone(), rows: [first, second] }
            })
        },
    )
}

/// The value as a char(n) column shows it.
fn padded(column: &Column, value: &Value) -> Value {
    match (column.ty, value) {
        (ColumnType::Char(length), Value::Text(text)) => {
            Value::Text(format!("{:<width$}", text.trim_end_matches(' '), width = usize::from(length)))
        }
        _ => value.clone(),
    }
}

/// The order that ORDER BY gives, NULLs last.
fn natural_order(column: &Column, left: &Value, right: &Value) -> Ordering {
    match (left.is_null(), right.is_null()) {
        (false, false) => match (column.ty, left, right) {
            (ColumnType::Char(_), Value::Text(left), Value::Text(right)) => {
                left.trim_end_matches(' ').cmp(right.trim_end_matches(' '))
            }
            _ => left.compare(right).unwrap(),
        },
        nulls => nulls.0.cmp(&nulls.1),
    }
}

#[test]
fn values_come_back_from_rows() {
    check(any_table(), |table| {
        for values in &table.rows {
            let bytes = encoded(&table.schema, values);
            prop_assert!(table.schema.has_row_length(&bytes));
            let view = RowView::validate(&table.schema, &bytes).unwrap();
            let row = Row::new(table.schema.clone(), bytes.clone());
            for (at, column) in table.schema.columns().iter().enumerate() {
                let expected = padded(column, &values[at]);
                prop_assert_eq!(view.get(at), expected.clone());
                prop_assert_eq!(row.get(column.name.as_str()).unwrap(), expected);
                prop_assert_eq!(view.is_null(at), values[at].is_null());
            }
            prop_assert_eq!(encoded(&table.schema, &view.values()), bytes);
        }
        Ok(())
    });
}

#[test]
fn keys_are_in_the_order_of_their_values() {
    check(any_table(), |table| {
        let schema = &table.schema;
        let rows = [table.encode(0), table.encode(1)];
        let (mut primary, mut index) = ([Key::new(), Key::new()], [Key::new(), Key::new()]);
        for at in 0..2 {
            schema.primary_key_of_row(&rows[at], at as u64, &mut primary[at]);
            schema.index_key_of_row(0, &rows[at], &primary[at], &mut index[at]);
        }
        let compare = |columns: &[usize]| {
            let compare =
                |at: &usize| natural_order(&schema.columns()[*at], &table.rows[0][*at], &table.rows[1][*at]);
            columns.iter().map(compare).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        // The rows of a table without a primary key have the numbers 0 and 1.
        let primary_order = schema.primary_key().map_or(Ordering::Less, compare);
        prop_assert_eq!(primary[0].cmp(&primary[1]), primary_order);
        let definition = &schema.indexes()[0];
        let any_null = definition.columns.iter().any(|at| table.rows[0][*at].is_null());
        let own = compare(&definition.columns);
        let expected = if definition.unique && !any_null { own } else { own.then(primary_order) };
        prop_assert_eq!(index[0].cmp(&index[1]), expected);
        Ok(())
    });
}

#[test]
fn keys_of_rows_are_keys_of_values_and_come_back() {
    check(any_table(), |table| {
        let (schema, values, row) = (&table.schema, &table.rows[0], table.encode(0));
        let pick = |columns: &[usize]| columns.iter().map(|at| values[*at].clone()).collect::<Vec<_>>();
        let trimmed = |columns: &[usize]| {
            let trim = |at: &usize| match (schema.columns()[*at].ty, &values[*at]) {
                (ColumnType::Char(_), Value::Text(text)) => {
                    Value::Text(text.trim_end_matches(' ').to_owned())
                }
                (_, value) => value.clone(),
            };
            columns.iter().map(trim).collect::<Vec<_>>()
        };
        let (mut primary, mut index, mut other) = (Key::new(), Key::new(), Key::new());
        schema.primary_key_of_row(&row, 5, &mut primary);
        match schema.primary_key() {
            Some(columns) => {
                schema.encode_primary_key(&pick(columns), &mut other).unwrap();
                prop_assert_eq!(&primary, &other);
                prop_assert_eq!(schema.decode_key(WhichIndex::Primary, &primary).unwrap(), trimmed(columns));
                schema.encode_primary_prefix(&pick(&columns[..1]), &mut other).unwrap();
                prop_assert!(primary.starts_with(&other));
            }
            None => {
                5u64.encode_into(schema.key_shape(WhichIndex::Primary), &mut other).unwrap();
                prop_assert_eq!(&primary, &other);
                prop_assert_eq!(
                    schema.decode_key(WhichIndex::Primary, &primary).unwrap(),
                    vec![Value::Int8(5)]
                );
            }
        }
        schema.index_key_of_row(0, &row, &primary, &mut index);
        let columns = &schema.indexes()[0].columns;
        for count in 0..=columns.len() {
            schema.encode_index_prefix(0, &pick(&columns[..count]), &mut other).unwrap();
            prop_assert!(index.starts_with(&other));
            prop_assert_eq!(
                schema.decode_key(WhichIndex::Secondary(0), &other).unwrap(),
                trimmed(&columns[..count])
            );
            if other.turn_into_prefix_end() {
                prop_assert!(index < other);
            }
        }
        prop_assert_eq!(schema.decode_key(WhichIndex::Secondary(0), &index).unwrap(), trimmed(columns));
        Ok(())
    });
}

#[test]
fn patched_rows_are_encoded_rows() {
    check(any_table(), |table| {
        let (schema, [from, to]) = (&table.schema, &table.rows);
        let key_of = |row: &[u8]| {
            let (mut primary, mut index) = (Key::new(), Key::new());
            schema.primary_key_of_row(row, 0, &mut primary);
            schema.index_key_of_row(0, row, &primary, &mut index);
            (primary, index)
        };
        let (old, mut values, mut patches) = (table.encode(0), from.clone(), FieldPatches::new());
        for at in (0..values.len()).filter(|at| schema.fixed_field(*at).is_some()) {
            let before = encoded(schema, &values);
            values[at] = to[at].clone();
            let after = encoded(schema, &values);
            let mut written = before.clone();
            schema.write_fixed(&mut written, at, &to[at]).unwrap();
            prop_assert_eq!(&written, &after);
            schema.patch_field(&old, at, to[at].borrow(), &mut patches).unwrap();

            let mut one = FieldPatches::new();
            prop_assert!(schema.diff(&before, &after, &mut one));
            let touches =
                |index| one.iter().any(|patch| schema.patch_touches_key(index, patch.offset(), patch.len()));
            let (before, after) = (key_of(&before), key_of(&after));
            prop_assert!(before.0 == after.0 || touches(WhichIndex::Primary));
            let touched = touches(WhichIndex::Secondary(0)) || touches(WhichIndex::Primary);
            prop_assert!(before.1 == after.1 || touched);
        }
        let (expected, mut patched) = (encoded(schema, &values), old.clone());
        patches.iter().for_each(|patch| patch.apply(&mut patched));
        prop_assert_eq!(&patched, &expected);
        let (mut diff, mut from_log) = (FieldPatches::new(), old.clone());
        prop_assert!(schema.diff(&old, &expected, &mut diff));
        for patch in &diff {
            schema.apply_patch(&mut from_log, patch.offset(), patch.bytes()).unwrap();
        }
        prop_assert_eq!(&from_log, &expected);
        // Patches are not about rows that differ in the bytes of a variable column.
        let other = table.encode(1);
        let same_bytes = |at: &usize| {
            RowView::new(schema, &expected).variable(*at) == RowView::new(schema, &other).variable(*at)
        };
        let mut variable = (0..values.len()).filter(|at| schema.fixed_field(*at).is_none());
        prop_assert_eq!(schema.diff(&expected, &other, &mut diff), variable.all(|at| same_bytes(&at)));
        Ok(())
    });
}

#[test]
fn rows_with_a_variable_column_set_in_place_are_encoded_rows() {
    check(any_table(), |table| {
        let (schema, [from, to]) = (&table.schema, &table.rows);
        if schema.keys_can_be_too_long {
            return Ok(());
        }
        let (mut values, mut body) = (from.clone(), b"in front".to_vec());
        let row_at = body.len();
        body.extend_from_slice(&table.encode(0));
        for at in (0..values.len()).filter(|at| schema.fixed_field(*at).is_none()) {
            let before = encoded(schema, &values);
            values[at] = to[at].clone();
            let after = encoded(schema, &values);
            let changed = schema.write_variable(&mut body, row_at, at, to[at].borrow()).unwrap();
            prop_assert_eq!(&body[row_at..], &after);
            prop_assert_eq!(changed, before != after);
            let too_long = "x".repeat(ROW_BYTES_MAX + 1);
            prop_assert!(schema.write_variable(&mut body, row_at, at, ValueRef::Text(&too_long)).is_err());
            prop_assert_eq!(&body[row_at..], &after);
        }
        prop_assert!(body.starts_with(b"in front"));
        Ok(())
    });
}

#[derive(Clone, Debug)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Append(Vec<u8>),
    Replace(Vec<u8>),
}

fn any_mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        6 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        1 => any::<prop::sample::Index>().prop_map(Mutation::Cut),
        1 => prop::collection::vec(any::<u8>(), 0..9).prop_map(Mutation::Append),
        1 => prop::collection::vec(any::<u8>(), 0..99).prop_map(Mutation::Replace),
    ]
}

fn mutated(mut bytes: Vec<u8>, mutations: Vec<Mutation>) -> Vec<u8> {
    for mutation in mutations {
        match mutation {
            Mutation::Set(at, byte) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            Mutation::Set(..) => {}
            Mutation::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
            Mutation::Append(more) => bytes.extend(more),
            Mutation::Replace(other) => bytes = other,
        }
    }
    bytes
}

#[test]
fn damaged_rows_are_errors_or_other_rows() {
    check((any_table(), prop::collection::vec(any_mutation(), 1..4)), |(table, mutations)| {
        let bytes = mutated(table.encode(0), mutations);
        match RowView::validate(&table.schema, &bytes) {
            // Bytes that pass are what the encoder makes of their values: there is no second encoding.
            Ok(view) => prop_assert_eq!(&encoded(&table.schema, &view.values()), &bytes),
            Err(Error::Corrupt { file, what, .. }) => {
                prop_assert!(file == "row of table t" && !what.is_empty())
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
        let mut row = table.encode(1);
        let _ = table.schema.apply_patch(&mut row, bytes.len() as u16, &bytes);
        prop_assert!(table.schema.apply_patch(&mut row, u16::MAX, &[1]).is_err());
        Ok(())
    });
}

#[test]
fn damaged_keys_are_errors_or_other_keys() {
    check((any_table(), prop::collection::vec(any_mutation(), 1..4)), |(table, mutations)| {
        let (schema, row) = (&table.schema, table.encode(0));
        let (mut primary, mut index) = (Key::new(), Key::new());
        schema.primary_key_of_row(&row, 1, &mut primary);
        schema.index_key_of_row(0, &row, &primary, &mut index);
        let bytes = mutated(index.to_vec(), mutations);
        for which in [WhichIndex::Primary, WhichIndex::Secondary(0)] {
            let printed = schema.print_key(which, &bytes);
            match schema.decode_key(which, &bytes) {
                Ok(values) => prop_assert!(values.len() <= schema.columns().len()),
                Err(Error::Corrupt { .. }) => prop_assert!(printed.contains("=(\\x"), "{}", printed),
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
        Ok(())
    });
}

#[test]
fn typed_keys_are_keys_of_values() {
    let columns = [ColumnType::Int2, ColumnType::Int4, ColumnType::Int8, ColumnType::Text, ColumnType::Bool];
    let columns = columns.iter().enumerate().map(|(at, ty)| Column::new(format!("c{at}"), *ty)).collect();
    let schema = Schema::new("t", columns, Some(vec![2, 0, 3, 1, 4]), vec![]).unwrap();
    let shape = schema.key_shape(WhichIndex::Primary);
    check((any::<i64>(), any::<i16>(), any_text(60), any::<i32>(), any::<bool>()), |key| {
        let values: [Value; 5] =
            [key.0.into(), key.1.into(), key.2.as_str().into(), key.3.into(), key.4.into()];
        let (mut typed, mut by_value) = (Key::new(), Key::new());
        key.encode_into(shape, &mut typed).unwrap();
        schema.encode_primary_key(&values, &mut by_value).unwrap();
        prop_assert_eq!(&typed, &by_value);
        // Any integer type works if the value fits; otherwise it is an error, and never another key.
        let wide = (key.0, i64::from(key.1), key.2.as_str(), i64::from(key.3), key.4);
        wide.encode_into(shape, &mut typed).unwrap();
        prop_assert_eq!(&typed, &by_value);
        let other = (key.0, key.0, key.2.as_str(), key.3, key.4).encode_into(shape, &mut typed);
        prop_assert_eq!(other.is_ok(), i16::try_from(key.0).is_ok());
        (key.0, key.1).encode_prefix_into(shape, &mut typed).unwrap();
        prop_assert!(by_value.starts_with(&typed));
        Ok(())
    });
}

#[test]
fn decimals_compare_and_parse_as_numbers() {
    let number =
        || (any::<i64>(), 0..=18u8).prop_map(|(digits, scale)| Decimal::new(digits.into(), scale).unwrap());
    check((number(), number()), |(left, right)| {
        // 19 digits at 18 places fit an i128 at one scale.
        let scaled = |number: Decimal| number.unscaled() * 10i128.pow(18 - u32::from(number.scale()));
        prop_assert_eq!(left.cmp(&right), scaled(left).cmp(&scaled(right)));
        prop_assert_eq!(left.to_string().parse::<Decimal>().unwrap(), left);
        prop_assert_eq!(left.to_string().parse::<Decimal>().unwrap().scale(), left.scale());
        let hash = RandomState::new();
        if let Some(same) = left.rescale(left.scale() + 3) {
            prop_assert_eq!(hash.hash_one(left), hash.hash_one(same));
        }
        let sum = left.checked_add(right).unwrap();
        prop_assert_eq!(sum.checked_sub(right).unwrap(), left);
        Ok(())
    });
}
