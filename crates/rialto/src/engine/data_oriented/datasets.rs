//! Datasets of about equal size. A policy: it gets keys that are evenly spaced in an index, and makes a routing rule.

use crate::isolate::RoutingRule;
use crate::row::{Key, LeadingColumns};

/// Datasets of about as many keys each, the first of them for the first executor, and so on. `marks` are keys of an
/// index, or prefixes of keys, evenly spaced in it, ascending.
///
/// Keys with the same value in their first column belong together. If there are no more such values than executors,
/// each value gets as many executors as any other, and its datasets lie within it; otherwise no dataset begins in the
/// middle of a value. So similar tables whose keys begin with the same column are divided alike: what a transaction
/// does for one value of that column is at few executors, and these are not the executors of another value.
pub(super) fn of_equal_size(marks: &[Key], first: &LeadingColumns, executors: u16) -> RoutingRule {
    let value = |mark: &Key| Key::from(&mark[..first.len_in(mark).unwrap_or(mark.len())]);
    let by_value: Vec<&[Key]> = marks.chunk_by(|one, next| value(one) == value(next)).collect();
    let (executors, values) = (usize::from(executors), by_value.len());
    let (mut bounds, mut owners, mut last) = (Vec::new(), vec![0], Key::new());
    let mut begin = |executor: usize, bound: Key| {
        if last < bound {
            last.clone_from(&bound);
            // The first dataset begins with the first of all keys.
            if executor > 0 {
                bounds.push(bound);
                owners.push(executor as u16);
            }
        }
    };
    if values > executors {
        (1..executors).for_each(|nth| begin(nth, value(&marks[nth * marks.len() / executors])));
        return RoutingRule::new(bounds, owners);
    }
    for (nth, marks) in by_value.into_iter().enumerate() {
        let own = nth * executors / values..(nth + 1) * executors / values;
        begin(own.start, value(&marks[0]));
        for part in 1..own.len() {
            begin(own.start + part, marks[part * marks.len() / own.len()].clone());
        }
    }
    RoutingRule::new(bounds, owners)
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::isolate::SpanRef;
    use crate::row::{Column, ColumnType, IntoKey, Schema, Value, WhichIndex};

    const EXECUTORS: u16 = 64;

    /// A table whose key has so many columns.
    fn schema(columns: usize) -> Schema {
        let defined = (0..columns).map(|nth| Column::new(format!("c{nth}"), ColumnType::Int4)).collect();
        Schema::new("t", defined, Some((0..columns).collect()), vec![]).unwrap()
    }

    fn key(schema: &Schema, values: &[i32]) -> Key {
        let (values, mut key): (Vec<Value>, _) =
            (values.iter().map(|value| Value::Int4(*value)).collect(), Key::new());
        values.as_slice().encode_prefix_into(schema.key_shape(WhichIndex::Primary), &mut key).unwrap();
        key
    }

    /// The rule for a table with these keys.
    fn rule(schema: &Schema, keys: impl Iterator<Item = Vec<i32>>) -> RoutingRule {
        let marks: Vec<Key> = keys.map(|values| key(schema, &values)).collect();
        assert!(marks.is_sorted());
        let first = schema.key_shape(WhichIndex::Primary).leading(1).unwrap();
        of_equal_size(&marks, &first, EXECUTORS)
    }

    fn executors_of(rule: &RoutingRule, schema: &Schema, values: &[i32]) -> Vec<u16> {
        let mut executors = SmallVec::new();
        rule.executors_of(SpanRef::prefix(&key(schema, values)), &mut executors);
        executors.to_vec()
    }

    #[test]
    fn few_values_of_the_first_column_have_executors_of_their_own_in_every_table() {
        let (one, two, three) = (schema(1), schema(2), schema(3));
        for warehouses in [1, 4, 10, 63, 64] {
            let of_warehouse = rule(&one, (0..warehouses).map(|w| vec![w]));
            let of_district = rule(&two, (0..warehouses * 10).map(|n| vec![n / 10, n % 10]));
            let of_customer =
                rule(&three, (0..warehouses * 1_000).map(|n| vec![n / 1_000, n / 100 % 10, n % 100]));
            let mut before = None;
            for w in 0..warehouses {
                let own = executors_of(&of_customer, &three, &[w]);
                assert!(
                    own.len() >= usize::from(EXECUTORS) / warehouses as usize,
                    "{w} of {warehouses}: {own:?}"
                );
                assert!(before.replace(*own.last().unwrap()).is_none_or(|last| last < own[0]));
                assert_eq!(executors_of(&of_warehouse, &one, &[w]), own[..1]);
                let of_districts = executors_of(&of_district, &two, &[w]);
                assert!(
                    of_districts.iter().all(|executor| own.contains(executor)),
                    "{of_districts:?} of {own:?}"
                );
                // The districts of a warehouse are at several executors, each at the one of its customers.
                for d in (0..10).filter(|_| warehouses <= 4) {
                    let at = executors_of(&of_district, &two, &[w, d])[0];
                    let customers = executors_of(&of_customer, &three, &[w, d]);
                    assert!((customers[0]..=customers[0] + 1).contains(&at), "{at} and {customers:?}");
                }
            }
        }
    }

    #[test]
    fn no_dataset_begins_in_the_middle_of_a_value_and_all_are_about_equal() {
        let two = schema(2);
        let rule = rule(&two, (0..5_000).map(|n| vec![n / 5, n % 5]));
        let mut by_executor = [0; EXECUTORS as usize];
        for n in 0..1_000 {
            let [executor] = executors_of(&rule, &two, &[n])[..] else {
                panic!("a value is at one executor")
            };
            by_executor[usize::from(executor)] += 1;
        }
        let expected = 1_000 / i32::from(EXECUTORS);
        assert!(
            by_executor.iter().all(|count| (expected - 1..=expected + 2).contains(count)),
            "{by_executor:?}"
        );
    }

    #[test]
    fn what_has_no_keys_is_one_dataset() {
        let one = schema(1);
        assert_eq!(executors_of(&rule(&one, std::iter::empty()), &one, &[]), [0]);
        assert_eq!(executors_of(&rule(&one, [vec![7]].into_iter()), &one, &[]), [0]);
        assert_eq!(executors_of(&rule(&one, [vec![7], vec![9]].into_iter()), &one, &[]), [0, 32]);
    }
}
