//! The statements of the sessions, and their outcomes on plain data.

use std::collections::BTreeSet;

use rialto::io::Random;

/// A value of a row, as text; a number may come in binary form.
pub type Cell = (u32, String);

/// Type numbers of PostgreSQL.
const INT4: u32 = 23;
const INT8: u32 = 20;
const TEXT: u32 = 25;

/// The shapes that the table `u` has in turn: its definition, its columns' types, and a row.
const SHAPES: [(&str, &[u32], &[&str]); 3] = [
    ("b int", &[INT4], &["7"]),
    ("b text, c int", &[TEXT, INT4], &["x", "7"]),
    ("c bigint", &[INT8], &["7"]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of this key, or of the one in the argument.
    Insert(Option<i32>),
    Delete,
    Find,
    All,
    /// All columns of the table that changes its shape.
    Shaped,
    /// Makes that table, with this shape.
    Make(usize),
    /// Inserts its row of this shape; only if it has that shape.
    Fill(usize),
    Drop,
    Begin,
    Commit,
    Rollback,
    Savepoint(u64),
    RollbackTo(u64),
    Release(u64),
    Divide,
    Copy,
    Empty,
    /// Its syntax is wrong.
    Broken,
    /// Its table does not exist.
    Absent,
}

/// The contents of the tables.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Data {
    pub keys: BTreeSet<i32>,
    /// The other table's shape, and whether it has its row.
    pub shaped: Option<(usize, bool)>,
}

/// Rows and the completion, or the code of an error.
pub type Comes = Result<(Vec<Vec<Cell>>, String), &'static str>;

/// Makes the tables, with some rows. Gives their contents.
pub fn create(run: &mut dyn FnMut(&str)) -> Data {
    let data = Data { keys: (1..=5).collect(), shaped: Some((0, false)) };
    for sql in ["drop table if exists t, u", "create table t (a int primary key)"] {
        run(sql);
    }
    data.keys.iter().for_each(|key| run(&Kind::Insert(Some(*key)).text()));
    run(&Kind::Make(0).text());
    data
}

impl Kind {
    /// The statements that give the other table another shape.
    pub fn reshape(random: &mut Random) -> Vec<Kind> {
        vec![Kind::Drop, Kind::Make(random.below(SHAPES.len() as u64) as usize)]
    }

    /// A random statement, which runs at most with the arguments of [`Kind::arguments`].
    pub fn any(random: &mut Random) -> Kind {
        let name = random.below(3);
        match random.below(40) {
            0..6 => Kind::Insert(None),
            6..8 => Kind::Insert(Some(random.below(20) as i32)),
            8..10 => Kind::Delete,
            10 | 11 => Kind::Find,
            12..17 => Kind::All,
            17..20 => Kind::Shaped,
            20 => Kind::Make(random.below(SHAPES.len() as u64) as usize),
            21 => Kind::Drop,
            22..25 => Kind::Begin,
            25 | 26 => Kind::Commit,
            27 => Kind::Rollback,
            28..30 => Kind::Savepoint(name),
            30..33 => Kind::RollbackTo(name),
            33 => Kind::Release(name),
            34 => Kind::Divide,
            35 => Kind::Copy,
            36 => Kind::Empty,
            37 => Kind::Broken,
            _ => Kind::Absent,
        }
    }

    pub fn text(self) -> String {
        match self {
            Kind::Insert(None) => "insert into t values ($1)".to_owned(),
            Kind::Insert(Some(key)) => format!("insert into t values ({key})"),
            Kind::Delete => "delete from t where a = $1".to_owned(),
            Kind::Find => "select a from t where a = $1".to_owned(),
            Kind::All => "select a from t order by a".to_owned(),
            Kind::Shaped => "select * from u".to_owned(),
            Kind::Make(shape) => format!("create table u ({})", SHAPES[shape].0),
            Kind::Fill(shape) => {
                let values: Vec<String> = SHAPES[shape].2.iter().map(|value| format!("'{value}'")).collect();
                format!("insert into u values ({})", values.join(", "))
            }
            Kind::Drop => "drop table u".to_owned(),
            Kind::Begin => "begin".to_owned(),
            Kind::Commit => "commit".to_owned(),
            Kind::Rollback => "rollback".to_owned(),
            Kind::Savepoint(name) => format!("savepoint s{name}"),
            Kind::RollbackTo(name) => format!("rollback to savepoint s{name}"),
            Kind::Release(name) => format!("release savepoint s{name}"),
            Kind::Divide => "select 1 / (n - 1) from generate_series(1, 1) n".to_owned(),
            Kind::Copy => "copy t from stdin".to_owned(),
            Kind::Empty => String::new(),
            Kind::Broken => "selec 1".to_owned(),
            Kind::Absent => "select * from nowhere".to_owned(),
        }
    }

    /// How many arguments it takes; they are integers.
    pub fn arguments(self) -> usize {
        usize::from(matches!(self, Kind::Insert(None) | Kind::Delete | Kind::Find))
    }

    /// The types of its parameters.
    pub fn parameters(self) -> Vec<u32> {
        vec![INT4; self.arguments()]
    }

    /// Whether it is served in a failed block.
    pub fn ends_failure(self) -> bool {
        matches!(self, Kind::Commit | Kind::Rollback | Kind::RollbackTo(_))
    }

    /// The types of its rows' columns, with the tables as they are; or the code of the error in its names.
    pub fn columns(self, data: &Data) -> Result<Vec<u32>, &'static str> {
        match self {
            Kind::All | Kind::Find | Kind::Divide => Ok(vec![INT4]),
            Kind::Shaped => data.shaped.map(|(shape, _)| SHAPES[shape].1.to_vec()).ok_or("42P01"),
            Kind::Absent => Err("42P01"),
            _ => Ok(Vec::new()),
        }
    }

    /// The outcome of a statement about rows or tables.
    pub fn apply(self, argument: Option<i32>, data: &mut Data) -> Comes {
        let key = || argument.expect("it has an argument");
        let number = |key: &i32| vec![(INT4, key.to_string())];
        let rows = |rows: Vec<Vec<Cell>>| {
            let tag = format!("SELECT {}", rows.len());
            Ok((rows, tag))
        };
        match self {
            Kind::Insert(given) => match data.keys.insert(given.unwrap_or_else(key)) {
                true => Ok((Vec::new(), "INSERT 0 1".to_owned())),
                false => Err("23505"),
            },
            Kind::Delete => Ok((Vec::new(), format!("DELETE {}", u8::from(data.keys.remove(&key()))))),
            Kind::Find => rows(data.keys.get(&key()).map(number).into_iter().collect()),
            Kind::All => rows(data.keys.iter().map(number).collect()),
            Kind::Shaped => {
                let (shape, is_filled) = data.shaped.ok_or("42P01")?;
                let (_, types, values) = SHAPES[shape];
                let row = || types.iter().zip(values).map(|(of, value)| (*of, (*value).to_owned())).collect();
                rows(is_filled.then(row).into_iter().collect())
            }
            Kind::Make(_) if data.shaped.is_some() => Err("42P07"),
            Kind::Make(shape) => {
                data.shaped = Some((shape, false));
                Ok((Vec::new(), "CREATE TABLE".to_owned()))
            }
            Kind::Fill(_) => {
                data.shaped.as_mut().expect("it is there").1 = true;
                Ok((Vec::new(), "INSERT 0 1".to_owned()))
            }
            Kind::Drop => match data.shaped.take() {
                Some(_) => Ok((Vec::new(), "DROP TABLE".to_owned())),
                None => Err("42P01"),
            },
            Kind::Divide => Err("22012"),
            other => unreachable!("{other:?} is about the transaction"),
        }
    }
}
