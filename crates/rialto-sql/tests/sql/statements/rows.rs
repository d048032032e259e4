//! Statements that read and change rows, and their outcomes on plain rows.

use std::cmp::Reverse;

use rialto::row::Value;

use super::conditions::Condition;
use super::{Client, NO_TABLE, Row, sorted, values};

impl Client {
    fn text(&mut self) -> String {
        let longest = if self.random.chance(1, 10) { 1_000 } else { 20 };
        "x".repeat(self.random.below(longest) as usize)
    }

    /// Changes a table's rows, and often reads all of them.
    pub fn change(&mut self) {
        let name = self.any_name();
        self.change_rows_of(name);
        if self.random.chance(1, 2) && !self.has_failed {
            self.verify(name);
        }
    }

    /// An INSERT, UPDATE or DELETE.
    pub fn change_rows_of(&mut self, name: &'static str) {
        match self.random.below(10) {
            0..3 => {
                let rows: Vec<Row> = (0..1 + self.random.below(4)).map(|_| self.row()).collect();
                let print = |(k, v, c): &Row| {
                    format!("({k}, {}, '{c}')", v.map_or("null".to_owned(), |v| v.to_string()))
                };
                let printed: Vec<_> = rows.iter().map(print).collect();
                let comes = self.with(name, |table| table.rows.extend(rows.clone()));
                self.expect(&format!("insert into {name} values {}", printed.join(", ")), comes);
            }
            3 | 4 => {
                let (from, count) = (self.next_k, 1 + self.random.below(300) as i32);
                self.next_k += count;
                let rows = (from..from + count).map(|n| (n, Some(n * 7), "ins".to_owned()));
                let comes = self.with(name, |table| table.rows.extend(rows));
                let last = from + count - 1;
                let sql = format!(
                    "insert into {name} select n, n * 7, 'ins' from generate_series({from}, {last}) n"
                );
                self.expect(&sql, comes);
            }
            5..8 => self.update(name),
            _ => {
                let condition = self.any_condition(name);
                let returns = self.random.chance(1, 2);
                let comes = self.returning(name, |table| {
                    let (gone, stay) = table.rows.drain(..).partition(|row| condition.holds(row));
                    table.rows = stay;
                    if returns { gone } else { Vec::new() }
                });
                let returning = if returns { " returning k, v, c" } else { "" };
                self.expect(&format!("delete from {name} where {condition}{returning}"), comes);
            }
        }
    }

    /// Sets columns of some rows. An indexed column gets the same value in each, so that the order of the rows does not
    /// decide which value is a duplicate.
    fn update(&mut self, name: &'static str) {
        let condition = self.any_condition(name);
        let is_unique =
            self.tables.get(name).is_some_and(|table| table.indexes.values().any(|unique| *unique));
        let k = self.random.chance(1, 6).then(|| self.random.below(400) as i32);
        let c = self.random.chance(1, 2).then(|| self.text());
        let more = self.random.chance(1, 3).then(|| self.random.below(40) as i32 - 20);
        let more = more.filter(|_| !is_unique);
        let is_any = k.is_some() || c.is_some() || more.is_some();
        let sets_v = !is_any || more.is_none() && self.random.chance(1, 2);
        let v = sets_v.then(|| self.random.chance(5, 6).then(|| self.random.below(400) as i32));
        let returns = self.random.chance(1, 2);
        let comes = self.returning(name, |table| {
            let mut changed = Vec::new();
            for row in table.rows.iter_mut().filter(|row| condition.holds(row)) {
                row.0 = k.unwrap_or(row.0);
                row.1 = v.unwrap_or(row.1.map(|v| v + more.unwrap_or(0)));
                row.2 = c.clone().unwrap_or(row.2.clone());
                changed.push(row.clone());
            }
            if returns { changed } else { Vec::new() }
        });
        let sets = [
            k.map(|k| format!("k = {k}")),
            v.map(|v| format!("v = {}", v.map_or("null".to_owned(), |v| v.to_string()))),
            more.map(|more| format!("v = v + {more}")),
            c.map(|c| format!("c = '{c}'")),
        ];
        let sets: Vec<String> = sets.into_iter().flatten().collect();
        let returning = if returns { " returning k, v, c" } else { "" };
        self.expect(&format!("update {name} set {} where {condition}{returning}", sets.join(", ")), comes);
    }

    /// A condition on a table's rows, most often one that half of them do not satisfy.
    fn any_condition(&mut self, name: &str) -> Condition {
        let rows = self.tables.get(name).map_or(&[][..], |table| &table.rows);
        let mut condition = Condition::any(&mut self.random, rows);
        for _ in 0..2 {
            let hits = rows.iter().filter(|row| condition.holds(row)).count();
            if 2 * hits <= rows.len() {
                break;
            }
            condition = Condition::any(&mut self.random, rows);
        }
        condition
    }

    fn row(&mut self) -> Row {
        let v = self.random.chance(5, 6).then(|| self.random.below(400) as i32);
        (self.random.below(400) as i32, v, self.text())
    }

    /// A SELECT of rows in some order, a part of them, or their number.
    pub fn select(&mut self, name: &'static str) {
        let condition = self.random.chance(5, 6).then(|| self.any_condition(name));
        let wanted = condition.as_ref().map_or(String::new(), |it| format!(" where {it}"));
        let hits = self.tables.get(name).map(|table| {
            let rows = table.rows.iter().filter(|row| condition.as_ref().is_none_or(|it| it.holds(row)));
            rows.cloned().collect::<Vec<Row>>()
        });
        let limit = self.random.chance(1, 2).then(|| self.random.below(8) as usize);
        let offset = self.random.chance(1, 4).then(|| self.random.below(4) as usize);
        let part = |rows: Vec<Vec<Value>>| -> Vec<Vec<Value>> {
            rows.into_iter().skip(offset.unwrap_or(0)).take(limit.unwrap_or(usize::MAX)).collect()
        };
        let cut = [limit.map(|n| format!(" limit {n}")), offset.map(|n| format!(" offset {n}"))];
        let cut = cut.into_iter().flatten().collect::<String>();
        // Rows that are equal in the selected columns may come in any order.
        let (sql, rows) = match self.random.below(4) {
            0 => {
                let count = hits.map(|rows| vec![vec![Value::Int8(rows.len() as i64)]]);
                (format!("select count(*) from {name}{wanted}"), count)
            }
            1 => {
                let ks = hits.map(|mut rows| {
                    rows.sort_by_key(|row| Reverse(row.0));
                    part(rows.iter().map(|row| vec![Value::Int4(row.0)]).collect())
                });
                (format!("select k from {name}{wanted} order by k desc{cut}"), ks)
            }
            2 => {
                let vs = hits.map(|mut rows| {
                    rows.sort_by_key(|row| (row.1.is_none(), row.1));
                    part(rows.iter().map(|row| vec![values(row).swap_remove(1)]).collect())
                });
                (format!("select v from {name}{wanted} order by v{cut}"), vs)
            }
            _ => {
                let rows = hits.map(|rows| part(sorted(rows)));
                (format!("select k, v, c from {name}{wanted} order by k, v, c{cut}"), rows)
            }
        };
        let comes = rows.map(|rows| (self.tables.clone(), rows)).ok_or(NO_TABLE);
        self.expect(&sql, comes);
    }
}
