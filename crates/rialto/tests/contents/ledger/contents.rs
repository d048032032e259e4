//! The required contents of a database after a number of transactions of each writer: everything follows from the
//! numbers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Database, Error, Result, Scan, Table, TableDef, Transaction};

use super::crowd::{self, Crowd};

/// Writers of rows.
pub const WRITERS: usize = 3;
/// The writer of definitions.
pub const DEFINER: usize = WRITERS;
/// The tables that writers write to, with the same rows.
pub const SIDES: [&str; 2] = ["left", "right"];
/// The table of the number of each writer's transactions.
pub const COUNT: &str = "count";
const KEYS: u64 = 40;
const DEFINED: usize = 3;
/// An index that is made and dropped beside the writers.
const MORE: &str = "left_more";

/// A row of a side, without its key. The NULLs of the last two columns lie in one byte.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    n: i64,
    text: String,
    a: Option<i32>,
    b: Option<String>,
}

impl Row {
    fn draw(n: i64, random: &mut Random) -> Row {
        let length = match random.below(24) {
            0 => 1_000 + random.below(7_000),
            1 => 1_000 + random.below(29_000),
            _ => random.below(80),
        };
        let text = char::from(b'a' + random.below(26) as u8).to_string().repeat(length as usize);
        let a = random.chance(1, 2).then(|| random.below(1_000) as i32);
        let b = random.chance(1, 2).then(|| "b".repeat(random.below(20) as usize));
        Row { n, text, a, b }
    }

    /// The columns after the key, by their positions.
    fn columns(&self) -> [(usize, Value); 4] {
        let a = self.a.map_or(Value::Null, Value::Int4);
        let b = self.b.clone().map_or(Value::Null, Value::Text);
        [(2, Value::Int8(self.n)), (3, Value::Text(self.text.clone())), (4, a), (5, b)]
    }

    /// Successive changes that turn another row into this one: the first ones set something else, and all stay in the
    /// packet.
    fn steps(&self, random: &mut Random) -> Vec<Vec<(usize, Value)>> {
        let other = Row::draw(self.n, random).columns();
        let mut steps: Vec<_> = other.into_iter().skip(2).map(|change| vec![change]).collect();
        steps.truncate(1 + random.below(2) as usize);
        let [n, text, a, b] = self.columns();
        let last = match random.below(3) {
            0 => vec![vec![n, text, a, b]],
            1 => vec![vec![a], vec![n, text], vec![b]],
            _ => vec![vec![b], vec![a, n], vec![text]],
        };
        steps.extend(last);
        steps
    }
}

/// The write of a writer's transaction to a key: the row that is put there, in steps where a row exists, or none if the
/// row is deleted.
pub type Write = (i32, Option<(Row, Vec<Vec<(usize, Value)>>)>);

pub fn writes_of(writer: usize, number: i64) -> Vec<Write> {
    let mut random = Random::new(number as u64 * 31 + writer as u64);
    let mut writes = BTreeMap::new();
    for _ in 0..1 + random.below(3) {
        let key = random.below(KEYS) as i32;
        let row = Row::draw(number, &mut random);
        let steps = row.steps(&mut random);
        writes.insert(key, random.chance(3, 4).then_some((row, steps)));
    }
    writes.into_iter().collect()
}

/// Rows of a side, by writer and key.
pub type Rows = BTreeMap<(i32, i32), Row>;

/// A table of the definer's.
#[derive(Debug, Clone, PartialEq)]
pub struct Defined {
    pub keyed: bool,
    pub by_n: bool,
    /// Columns after the first two; each has the row's `n`.
    pub wide: usize,
    pub rows: BTreeMap<i32, i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    pub counts: Vec<i64>,
    pub rows: Rows,
    pub defined: [Option<Defined>; DEFINED],
    pub more: bool,
    /// The number of the definer's transaction that last touched the rows of the large table.
    pub touched: i64,
    pub crowd: Crowd,
}

impl Default for Contents {
    fn default() -> Contents {
        Contents {
            counts: vec![0; WRITERS + 1],
            rows: Rows::new(),
            defined: [const { None }; DEFINED],
            more: false,
            touched: 0,
            crowd: Crowd::default(),
        }
    }
}

impl Contents {
    /// Advances to these counts of transactions.
    pub fn advance(&mut self, counts: &[i64]) {
        for (writer, count) in counts.iter().enumerate().take(WRITERS) {
            for number in self.counts[writer] + 1..=*count {
                for (key, row) in writes_of(writer, number) {
                    let key = (writer as i32, key);
                    match row {
                        Some((row, _)) => self.rows.insert(key, row),
                        None => self.rows.remove(&key),
                    };
                }
            }
        }
        for number in self.counts[DEFINER] + 1..=counts[DEFINER] {
            define(None, self, number).expect("a model refuses nothing");
        }
        self.counts = counts.to_vec();
    }
}

fn side(tx: &mut Transaction, name: &str) -> Result<()> {
    let columns = vec![
        Column::new("writer", ColumnType::Int4),
        Column::new("key", ColumnType::Int4),
        Column::new("n", ColumnType::Int8),
        Column::new("text", ColumnType::Text),
        Column::nullable("a", ColumnType::Int4),
        Column::nullable("b", ColumnType::Text),
    ];
    tx.create_table(&TableDef::new(name, columns).with_primary_key(&["writer", "key"])).map(drop)
}

/// A table in which one row in [`TOUCHED`] is ever touched.
const STILL: &str = "still";
/// Nearly every segment has such a row, so one transaction makes the whole table dirty.
const TOUCHED: i32 = 200;

fn still_row(id: i32, touched: i64) -> [Value; 3] {
    let n = if id % TOUCHED == 0 { touched } else { 0 };
    [Value::Int4(id), Value::Int8(n), Value::Text(format!("{id}, {}", "still ".repeat(id as usize % 90)))]
}

/// Writes a transaction's number to each row that is touched.
fn touch(tx: &mut Transaction, number: i64) -> Result<()> {
    let table = tx.table(STILL)?;
    let mut id = 0;
    while tx.update(&table, id, &[(1, Value::Int8(number))])? {
        id += TOUCHED;
    }
    Ok(())
}

/// The tables that writers need, and one with this many rows that, but for a few, do not change.
pub fn prepare(db: &Database, still: i32) {
    db.transact(|tx| {
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::new("n", ColumnType::Int8),
            Column::new("text", ColumnType::Text),
        ];
        let table = tx.create_table(&TableDef::new(STILL, columns).with_primary_key(&["id"]))?;
        (0..still).try_for_each(|id| tx.insert(&table, &still_row(id, 0)))
    })
    .unwrap();
    db.transact(|tx| {
        SIDES.iter().try_for_each(|name| side(tx, name))?;
        crowd::prepare(tx)?;
        tx.create_index("left", "left_by_n", &["n", "key", "writer"], true)?;
        tx.create_index("right", "right_by_n", &["n"], false)?;
        let columns = vec![Column::new("writer", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
        let count = tx.create_table(&TableDef::new(COUNT, columns).with_primary_key(&["writer"]))?;
        (0..=WRITERS as i32).try_for_each(|it| tx.insert(&count, &[Value::Int4(it), Value::Int8(0)]))
    })
    .unwrap();
}

/// Counts the writer's transaction with this number.
pub fn count(tx: &mut Transaction, table: &Table, writer: usize, number: i64) -> Result<()> {
    let there = tx.modify(table, writer as i32, |row| {
        let now = row.get_i64(1)?;
        assert_eq!(now, number - 1, "writer {writer}");
        row.add(1, 1).map(drop)
    })?;
    assert!(there, "writer {writer} has a count");
    Ok(())
}

/// How many of a writer's transactions are counted.
pub fn count_of(tx: &mut Transaction, table: &Table, writer: usize) -> Result<i64> {
    tx.look(table, writer as i32, |row| row.get_i64(1))?.expect("each writer has a count")
}

/// Makes the writes of the writer's transaction to one side.
pub fn write(tx: &mut Transaction, table: &Table, writer: usize, number: i64) -> Result<()> {
    let writer = writer as i32;
    for (key, row) in writes_of(writer as usize, number) {
        let Some((row, steps)) = row else {
            tx.delete(table, (writer, key))?;
            continue;
        };
        for (nth, changes) in steps.iter().enumerate() {
            let is_there = tx.update(table, (writer, key), changes)?;
            if !is_there {
                assert_eq!(nth, 0, "a row that a transaction has changed is there for it");
                let columns = row.columns().into_iter().map(|(_, value)| value);
                let row: Vec<_> =
                    [Value::Int4(writer), Value::Int4(key)].into_iter().chain(columns).collect();
                tx.insert(table, &row)?;
                break;
            }
        }
    }
    Ok(())
}

/// Writes to one side what exists only until the transaction ends, or rolls back: a row of a key that no transaction
/// has, and changes of existing rows.
pub fn write_what_never_stays(tx: &mut Transaction, table: &Table, writer: usize) -> Result<()> {
    let writer = writer as i32;
    let row = [
        Value::Int4(writer),
        Value::Int4(KEYS as i32),
        Value::Int8(-1),
        Value::Text("never".to_owned()),
        Value::Null,
        Value::Null,
    ];
    tx.insert(table, &row)?;
    for key in 0..KEYS as i32 / 8 {
        tx.update(table, (writer, key), &[(3, Value::Text("never".to_owned()))])?;
    }
    Ok(())
}

/// A row of a table of the definer's.
fn defined_row(id: i32, n: i64, wide: usize) -> Vec<Value> {
    [Value::Int4(id)].into_iter().chain(vec![Value::Int8(n); 1 + wide]).collect()
}

fn defined_columns(wide: usize) -> Vec<Column> {
    let more = (0..wide).map(|nth| Column::new(format!("more_{nth}"), ColumnType::Int8));
    [Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)]
        .into_iter()
        .chain(more)
        .collect()
}

/// The definer's transaction with this number, on a model and, if there is one, on the database.
pub fn define(mut tx: Option<&mut Transaction>, model: &mut Contents, number: i64) -> Result<()> {
    let mut random = Random::new(number as u64 * 31 + DEFINER as u64);
    // First, as for the writers: so no transaction waits for it while it holds another table.
    crowd::define(tx.as_deref_mut(), &mut model.crowd, number, &mut random)?;
    let unique = random.chance(1, 2);
    if random.chance(1, 6) {
        if let Some(tx) = &mut tx {
            if model.more {
                tx.drop_index(MORE)?;
            } else {
                tx.create_index("left", MORE, &["writer", "n", "key"], unique)?;
            }
        }
        model.more = !model.more;
    }
    if random.chance(1, 4) {
        if let Some(tx) = &mut tx {
            touch(tx, number)?;
        }
        model.touched = number;
    }
    for _ in 0..1 + random.below(2) {
        let nth = random.below(DEFINED as u64) as usize;
        let name = format!("d{nth}");
        let what = random.below(6);
        let mut defined = model.defined[nth].take();
        if defined.is_some() && what < 2 {
            if let Some(tx) = &mut tx {
                tx.drop_table(&name)?;
            }
            defined = None;
            if what == 0 {
                continue;
            }
        }
        let made = defined.is_none();
        let mut defined = match defined {
            Some(defined) => defined,
            None => {
                let keyed = random.chance(1, 2);
                let wide = [0, 0, 0, 7, 150][random.below(5) as usize];
                if let Some(tx) = &mut tx {
                    let def = TableDef::new(name.clone(), defined_columns(wide));
                    tx.create_table(&if keyed { def.with_primary_key(&["id"]) } else { def })?;
                }
                Defined { keyed, by_n: false, wide, rows: BTreeMap::new() }
            }
        };
        let truncated = !made && what == 2;
        if truncated {
            if let Some(tx) = &mut tx {
                let table = tx.table(&name)?;
                tx.truncate(&table)?;
            }
            defined.rows.clear();
        }
        if what == 3 {
            if let Some(tx) = &mut tx {
                if defined.by_n {
                    tx.drop_index(&format!("{name}_by_n"))?;
                } else {
                    tx.create_index(&name, &format!("{name}_by_n"), &["n"], true)?;
                }
            }
            defined.by_n = !defined.by_n;
        }
        if what == 4 && !defined.keyed {
            if let Some(tx) = &mut tx {
                tx.add_primary_key(&name, &["id"])?;
            }
            defined.keyed = true;
        }
        // Into a new table this is a bulk load.
        let first = defined.rows.last_key_value().map_or(0, |(id, _)| id + 1);
        let most = if made || truncated { [2_000, 100, 100][random.below(3) as usize] } else { 20 };
        let rows = random.below(most);
        let rows = if defined.wide > 100 { rows / 20 } else { rows };
        for id in first..first + rows as i32 {
            let n = number * 100_000 + i64::from(id);
            if let Some(tx) = &mut tx {
                let table = tx.table(&name)?;
                tx.insert(&table, &defined_row(id, n, defined.wide))?;
            }
            defined.rows.insert(id, n);
        }
        model.defined[nth] = Some(defined);
    }
    Ok(())
}

/// The rows of a table by one of its indexes.
pub fn scan(
    tx: &mut Transaction,
    table: &Table,
    index: WhichIndex,
    mut each: impl FnMut(&rialto::row::RowView<'_>) -> Result<()>,
) -> Result<()> {
    tx.scan(table, &Scan { index, ..Scan::all() }, |_, row| {
        each(&row)?;
        Ok(ControlFlow::Continue(()))
    })
}

fn indexes_of(table: &Table) -> Vec<WhichIndex> {
    let secondary = (0..table.schema().indexes().len()).map(WhichIndex::Secondary);
    [WhichIndex::Primary].into_iter().chain(secondary).collect()
}

pub fn rows_of<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    tx: &mut Transaction,
    table: &Table,
    about: &str,
    read: impl Fn(&rialto::row::RowView<'_>) -> Result<(K, V)>,
) -> Result<BTreeMap<K, V>> {
    let mut found: Option<BTreeMap<K, V>> = None;
    for index in indexes_of(table) {
        let mut rows = BTreeMap::new();
        scan(tx, table, index, |row| {
            let (key, value) = read(row)?;
            let twice = rows.insert(key, value).is_some();
            assert!(!twice, "{about}: {} has a row twice by {index:?}", table.name());
            Ok(())
        })?;
        match &found {
            None => found = Some(rows),
            Some(found) => assert!(rows == *found, "{about}: {} by {index:?}: {rows:?}", table.name()),
        }
    }
    Ok(found.expect("each table has an index"))
}

/// The contents of a database.
pub fn contents(db: &Database, about: &str) -> Contents {
    let mut tx = db.begin().unwrap();
    let found = contents_in(&mut tx, db, about).unwrap_or_else(|error| panic!("{about}: {error}"));
    tx.abort().unwrap();
    found
}

fn contents_in(tx: &mut Transaction, db: &Database, about: &str) -> Result<Contents> {
    let mut found = Contents::default();
    let (table, mut id) = (db.table(STILL)?, 0);
    scan(tx, &table, WhichIndex::Primary, |row| {
        if id == 0 {
            found.touched = row.get_i64(1)?;
        }
        assert_eq!(row.values(), still_row(id, found.touched), "{about}: a row of {STILL}");
        id += 1;
        Ok(())
    })?;
    assert!(super::STILL.contains(&id), "{about}: {id} rows of {STILL}");
    let table = db.table(COUNT)?;
    for writer in 0..=WRITERS {
        found.counts[writer] = count_of(tx, &table, writer)?;
    }
    found.crowd = crowd::read(tx, db, &found.counts, about)?;
    let mut sides = Vec::new();
    for name in SIDES {
        let table = db.table(name)?;
        found.more |= table.schema().indexes().iter().any(|index| index.name == MORE);
        sides.push(rows_of(tx, &table, about, |row| {
            let key = (row.get_i32(0)?, row.get_i32(1)?);
            let values = row.values();
            let a = if let Value::Int4(a) = values[4] { Some(a) } else { None };
            let b = if let Value::Text(b) = &values[5] { Some(b.clone()) } else { None };
            Ok((key, Row { n: row.get_i64(2)?, text: row.get_str(3)?.to_owned(), a, b }))
        })?);
    }
    let right = sides.pop().expect("two");
    found.rows = sides.pop().expect("two");
    assert!(found.rows == right, "{about}: the sides differ");
    for nth in 0..DEFINED {
        let table = match db.table(&format!("d{nth}")) {
            Err(Error::NoSuchTable { .. }) => continue,
            table => table?,
        };
        let keyed = table.schema().primary_key().is_some();
        let by_n = !table.schema().indexes().is_empty();
        let columns = table.schema().columns().len();
        let rows = rows_of(tx, &table, about, |row| {
            let n = row.get_i64(1)?;
            for column in 2..columns {
                assert_eq!(row.get_i64(column)?, n, "{about}: column {column} of a row of d{nth}");
            }
            Ok((row.get_i32(0)?, n))
        })?;
        found.defined[nth] = Some(Defined { keyed, by_n, wide: columns - 2, rows });
    }
    Ok(found)
}

/// Fails with the differences.
pub fn compare(found: &Contents, expected: &Contents, about: &str) {
    assert_eq!(found.counts, expected.counts, "{about}: transactions of each writer");
    for (key, row) in &expected.rows {
        let there = found.rows.get(key);
        assert!(there == Some(row), "{about}: row {key:?} is {there:?}, expected {row:?}");
    }
    for key in found.rows.keys() {
        assert!(expected.rows.contains_key(key), "{about}: row {key:?} should not be there");
    }
    for (nth, (there, defined)) in found.defined.iter().zip(&expected.defined).enumerate() {
        let outline =
            |it: &Option<Defined>| it.as_ref().map(|it| (it.keyed, it.by_n, it.wide, it.rows.len()));
        assert!(
            there == defined,
            "{about}: d{nth} is {:?}, expected {:?} (key, index, columns more, rows)",
            outline(there),
            outline(defined)
        );
    }
    assert_eq!(found.more, expected.more, "{about}: {MORE}");
    assert_eq!(found.crowd, expected.crowd, "{about}: how the crowd is defined");
    assert_eq!(
        found.touched, expected.touched,
        "{about}: the definer's transaction that touched {STILL} last"
    );
}
