//! The settings that SET changes and SHOW tells.
//!
//! Invariant: a setting takes only values that have an effect. A setting that PostgreSQL's clients send, but that has
//! only one meaning here, takes that value and refuses others.

use std::time::Duration;

use rialto::io::FOR_EVER;

use super::block::cut;
use super::timeouts;
use crate::error::{Result, SqlError, SqlState};
use crate::parse::{Access, Name, SetValue};
use crate::partitions::{Level, NoPositions, Positions};

/// A session's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `application_name`.
    pub application_name: String,
    /// `rialto.durability`; `None` for the database's own.
    pub durability: Option<Level>,
    /// `rialto.read_staleness`: how old what a transaction reads may be, if it only reads; `None` if it is read at primaries.
    pub read_staleness: Option<Duration>,
    /// `rialto.read_after`: what such reads have at least, places that `rialto.commit_position` told.
    pub read_after: Positions,
    /// `rialto.commit_stall`: how long a commit stalls, where the group commit design stalls for a set time; `None` for
    /// the database's own.
    pub commit_stall: Option<Duration>,
    /// `rialto.willing_to_wait`: how long a transaction is willing to take in all, where the group commit design asks
    /// for that; `None` for the database's own.
    pub willing_to_wait: Option<Duration>,
    /// `lock_timeout`: the longest wait for one lock.
    pub lock_timeout: Duration,
    /// `statement_timeout`: the longest time of one statement; zero for no limit.
    pub statement_timeout: Duration,
    /// `default_transaction_read_only`.
    pub read_only: bool,
    /// `client_encoding`, one of two words for the same bytes.
    pub client_encoding: &'static str,
    /// `client_min_messages`: whether notices are sent, and warnings.
    pub notices: bool,
    /// `extra_float_digits`, 1 to 3: floats always print so that they read back.
    pub extra_float_digits: u8,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            application_name: String::new(),
            durability: None,
            read_staleness: None,
            read_after: Positions::default(),
            commit_stall: None,
            willing_to_wait: None,
            lock_timeout: rialto::Options::default().lock_timeout,
            statement_timeout: Duration::ZERO,
            read_only: false,
            client_encoding: "UTF8",
            notices: true,
            extra_float_digits: 1,
        }
    }
}

/// Settings that can be read and take no value but their own.
const FIXED: [(&str, &str); 15] = [
    ("server_version", crate::SERVER_VERSION),
    ("server_version_num", "150000"),
    ("server_encoding", "UTF8"),
    ("datestyle", "ISO, MDY"),
    ("intervalstyle", "postgres"),
    ("timezone", "UTC"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
    ("in_hot_standby", "off"),
    ("bytea_output", "hex"),
    ("synchronize_seqscans", "off"),
    ("row_security", "off"),
    ("search_path", "public"),
    ("idle_in_transaction_session_timeout", "0"),
];

/// The database's settings, which ALTER SYSTEM changes for all sessions at once, until the database is closed.
const SYSTEM: [&str; 1] = [RAISE_STALLS];

/// The time that an administrator adds to every stall.
pub(super) const RAISE_STALLS: &str = "rialto.raise_stalls";

/// The notation of a wait.
const WAIT: &str = "milliseconds, or a number with us, ms, s or min, at most 60s";

/// The notation of a staleness.
const STALENESS: &str =
    "off, or milliseconds, or a number with us, ms, s, min, h or d, at most 2147483647 ms; 0 is off";

/// The notation of positions.
const POSITIONS: &str =
    "what SHOW rialto.commit_position told, CLUSTER:PARTITION.OPENING.PLACE, further places after commas";

/// Where clients reach the nodes of a cluster, separated by commas; empty without one.
pub(super) const NODES: &str = "rialto.nodes";

/// What this node of a cluster has counted since its start; empty without one.
pub(super) const NODE_COUNTS: &str = "rialto.node_counts";

/// Positions after what was written by the last transaction that has written and was committed; empty without a
/// cluster, and where all settings are shown.
pub(super) const COMMIT_POSITION: &str = "rialto.commit_position";

/// What SHOW tells of a cluster, and SET cannot change.
const CLUSTER: [&str; 3] = [NODES, NODE_COUNTS, COMMIT_POSITION];

/// Settings whose values hold for every transaction.
const ISOLATION: [&str; 2] = ["transaction_isolation", "default_transaction_isolation"];

/// How old what is read may be.
pub(super) const READ_STALENESS: &str = "rialto.read_staleness";

/// What is read has everything up to these positions.
pub(super) const READ_AFTER: &str = "rialto.read_after";

/// Settings that can be set.
const CHANGEABLE: [&str; 13] = [
    "application_name",
    "rialto.durability",
    READ_STALENESS,
    READ_AFTER,
    "rialto.commit_stall",
    "rialto.willing_to_wait",
    "lock_timeout",
    "statement_timeout",
    "default_transaction_read_only",
    "transaction_read_only",
    "client_encoding",
    "client_min_messages",
    "extra_float_digits",
];

fn unknown(name: &Name) -> SqlError {
    let message = format!("unrecognized configuration parameter \"{}\"", name.text);
    SqlError::new(SqlState::UndefinedObject, message).at(name.position)
}

/// An error unless there is a setting of this name.
pub(super) fn check_name(name: &Name) -> Result<()> {
    let fixed = FIXED.iter().any(|(fixed, _)| *fixed == name.text);
    let known =
        [&ISOLATION[..], &CHANGEABLE, &SYSTEM, &CLUSTER].iter().any(|names| names.contains(&&*name.text));
    if fixed || known { Ok(()) } else { Err(unknown(name)) }
}

/// The names of all settings, in order.
pub(super) fn names() -> Vec<&'static str> {
    let own = ISOLATION.into_iter().chain(CHANGEABLE).chain(SYSTEM).chain(CLUSTER);
    let mut names: Vec<&str> = FIXED.iter().map(|(name, _)| *name).chain(own).collect();
    names.sort_unstable();
    names
}

impl Settings {
    /// The access mode of transactions that choose none.
    #[inline]
    pub(super) fn default_access(&self) -> Access {
        if self.read_only { Access::ReadOnly } else { Access::ReadWrite }
    }

    /// The settings that clients are told of when they change, with their values as clients know them.
    pub(super) fn reported(&self) -> [(&'static str, String); 3] {
        ["application_name", "client_encoding", "default_transaction_read_only"]
            .map(|name| (name, self.show(name, false)))
    }

    /// The value that SHOW tells. `read_only` is the transaction's.
    pub(super) fn show(&self, name: &str, read_only: bool) -> String {
        let on = |on: bool| if on { "on" } else { "off" }.to_string();
        match name {
            "application_name" => self.application_name.clone(),
            "rialto.durability" => match self.durability {
                None => "default".to_string(),
                Some(Level::Memory) => "memory".to_string(),
                Some(Level::Standby) => "standby".to_string(),
                Some(Level::Disk) => "disk".to_string(),
            },
            READ_STALENESS => self.read_staleness.map_or("off".to_string(), timeouts::show),
            READ_AFTER => self.read_after.to_string(),
            "rialto.commit_stall" => self.commit_stall.map_or("default".to_string(), show_wait),
            "rialto.willing_to_wait" => self.willing_to_wait.map_or("default".to_string(), show_wait),
            "lock_timeout" => match self.lock_timeout {
                FOR_EVER => "0".to_string(),
                limit => timeouts::show(limit),
            },
            "statement_timeout" => timeouts::show(self.statement_timeout),
            "default_transaction_read_only" => on(self.read_only),
            "transaction_read_only" => on(read_only),
            "client_encoding" => self.client_encoding.to_string(),
            "client_min_messages" => if self.notices { "notice" } else { "warning" }.to_string(),
            "extra_float_digits" => self.extra_float_digits.to_string(),
            name if ISOLATION.contains(&name) => "serializable".to_string(),
            name => FIXED.iter().find(|(fixed, _)| *fixed == name).map_or("", |(_, value)| value).to_string(),
        }
    }

    /// Changes a setting; DEFAULT changes it to the value in `default`.
    pub fn set(&mut self, name: &Name, value: &SetValue, default: &Settings) -> Result<()> {
        check_name(name)?;
        let wrong = |value: &str, expected: &str| wrong(name, value, expected);
        let text = match value {
            SetValue::Default => None,
            SetValue::Text(text) => Some(text.as_str()),
        };
        match name.text.as_str() {
            "application_name" => {
                self.application_name = cut(text.unwrap_or(&default.application_name)).to_string();
            }
            "rialto.durability" => {
                self.durability = match text.map(str::to_ascii_lowercase).as_deref() {
                    None => default.durability,
                    Some("default") => None,
                    Some("memory") => Some(Level::Memory),
                    Some("standby") => Some(Level::Standby),
                    Some("disk") => Some(Level::Disk),
                    Some(other) => {
                        return Err(wrong(other, "memory, standby, disk or default"));
                    }
                }
            }
            READ_STALENESS => {
                self.read_staleness = match text {
                    None => default.read_staleness,
                    Some(text) if text.eq_ignore_ascii_case("off") => None,
                    Some(text) => {
                        let staleness = timeouts::parse(text).ok_or_else(|| wrong(text, STALENESS))?;
                        Some(staleness).filter(|staleness| !staleness.is_zero())
                    }
                }
            }
            READ_AFTER => {
                self.read_after = match text {
                    None => default.read_after.clone(),
                    Some(text) => text.parse().map_err(|NoPositions| wrong(text, POSITIONS))?,
                }
            }
            "rialto.commit_stall" => {
                self.commit_stall =
                    own_wait(text, default.commit_stall).ok_or_else(|| wrong_wait(name, value))?
            }
            "rialto.willing_to_wait" => {
                self.willing_to_wait =
                    own_wait(text, default.willing_to_wait).ok_or_else(|| wrong_wait(name, value))?
            }
            system if SYSTEM.contains(&system) => {
                let message = format!("parameter \"{system}\" cannot be changed in a session");
                let hint = format!("It is the whole database's: ALTER SYSTEM SET {system} = ...");
                return Err(SqlError::new(SqlState::CannotChangeNow, message).hint(hint).at(name.position));
            }
            cluster if CLUSTER.contains(&cluster) => {
                let message = format!("parameter \"{cluster}\" cannot be changed: it tells of the cluster");
                return Err(SqlError::new(SqlState::CannotChangeNow, message).at(name.position));
            }
            "lock_timeout" => {
                self.lock_timeout = match text {
                    None => default.lock_timeout,
                    Some(text) => {
                        match timeouts::parse(text).ok_or_else(|| wrong(text, timeouts::NOTATION))? {
                            Duration::ZERO => FOR_EVER,
                            limit => limit,
                        }
                    }
                }
            }
            "statement_timeout" => {
                self.statement_timeout = match text {
                    None => default.statement_timeout,
                    Some(text) => timeouts::parse(text).ok_or_else(|| wrong(text, timeouts::NOTATION))?,
                }
            }
            "default_transaction_read_only" => {
                self.read_only = match text {
                    None => default.read_only,
                    Some(text) => boolean(text).ok_or_else(|| wrong(text, "on or off"))?,
                }
            }
            "client_encoding" => {
                let text = text.unwrap_or(default.client_encoding);
                // As in PostgreSQL, only letters and digits count: asyncpg sends quotes.
                let counts = text.chars().filter(char::is_ascii_alphanumeric);
                self.client_encoding = match counts.collect::<String>().to_ascii_uppercase().as_str() {
                    "UTF8" | "UNICODE" => "UTF8",
                    "SQLASCII" => "SQL_ASCII",
                    _ => return Err(wrong(text, "UTF8")),
                };
            }
            "client_min_messages" => {
                self.notices = match text.map(str::to_ascii_lowercase).as_deref() {
                    None => default.notices,
                    Some("notice" | "log" | "info") => true,
                    Some("warning") => false,
                    Some(other) => return Err(wrong(other, "notice or warning")),
                }
            }
            "extra_float_digits" => {
                let number = text
                    .map_or(Some(default.extra_float_digits), |text| text.parse::<u8>().ok())
                    .filter(|number| (1..=3).contains(number));
                let other = text.unwrap_or_default();
                self.extra_float_digits =
                    number.ok_or_else(|| wrong(other, "1 to 3: floats always print all their digits"))?;
            }
            fixed if ISOLATION.contains(&fixed) => {
                let levels =
                    ["serializable", "repeatable read", "read committed", "read uncommitted", "default"];
                let level = text.unwrap_or("default").to_ascii_lowercase();
                if !levels.contains(&level.as_str()) {
                    return Err(wrong(&level, "an isolation level; each of them runs serializable"));
                }
            }
            fixed => {
                let own = self.show(fixed, false);
                let same = text.is_none_or(|text| same_value(fixed, text, &own));
                if !same {
                    let message = format!("parameter \"{fixed}\" cannot be changed: it is \"{own}\"");
                    return Err(SqlError::new(SqlState::CannotChangeNow, message).at(name.position));
                }
            }
        }
        Ok(())
    }
}

/// A value that a setting does not take.
pub(super) fn wrong(name: &Name, value: &str, expected: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{}\": \"{value}\"", name.text);
    SqlError::new(SqlState::InvalidParameterValue, message).hint(format!("Expected: {expected}."))
}

fn wrong_wait(name: &Name, value: &SetValue) -> SqlError {
    let SetValue::Text(text) = value else { unreachable!("the default is always right") };
    wrong(name, text, WAIT)
}

/// A wait of the session's own, or the database's. `None` if the text is neither.
fn own_wait(text: Option<&str>, default: Option<Duration>) -> Option<Option<Duration>> {
    match text {
        None => Some(default),
        Some(text) if text.eq_ignore_ascii_case("default") => Some(None),
        Some(text) => wait(text).map(Some),
    }
}

/// The new value of an ALTER SYSTEM.
///
/// # Errors
/// A name that is no setting, or a session's setting; a value that is no wait.
pub(super) fn raised_stalls(name: &Name, value: &SetValue) -> Result<Duration> {
    check_name(name)?;
    if !SYSTEM.contains(&&*name.text) {
        let message = format!("parameter \"{}\" cannot be changed by ALTER SYSTEM", name.text);
        let hint = format!("Those that can: {}.", SYSTEM.join(", "));
        return Err(SqlError::new(SqlState::CannotChangeNow, message).hint(hint).at(name.position));
    }
    match value {
        SetValue::Default => Ok(Duration::ZERO),
        SetValue::Text(text) => wait(text).ok_or_else(|| wrong_wait(name, value)),
    }
}

/// Whether a value is the one that a fixed setting has anyway.
fn same_value(name: &str, value: &str, own: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let words = |text: &str| {
        text.to_ascii_lowercase().split(',').map(|word| word.trim().to_string()).collect::<Vec<_>>()
    };
    match name {
        "datestyle" => words(&value).iter().all(|word| words(own).contains(word)),
        "timezone" => matches!(value.as_str(), "utc" | "gmt" | "etc/utc" | "0" | "z" | "zulu"),
        "search_path" => words(&value).iter().all(|word| matches!(word.as_str(), "public" | "$user")),
        _ => match (boolean(&value), boolean(own)) {
            (Some(left), Some(right)) => left == right,
            _ => value == own.to_ascii_lowercase(),
        },
    }
}

/// A boolean as PostgreSQL reads a setting's: in any case, and abbreviated where that is unambiguous.
pub(super) fn boolean(text: &str) -> Option<bool> {
    const WORDS: [(&str, usize, bool); 8] = [
        ("true", 1, true),
        ("false", 1, false),
        ("yes", 1, true),
        ("no", 1, false),
        ("on", 2, true),
        ("off", 2, false),
        ("1", 1, true),
        ("0", 1, false),
    ];
    let text = text.to_ascii_lowercase();
    let found = WORDS.iter().find(|(word, least, _)| text.len() >= *least && word.starts_with(&text));
    found.map(|(_, _, value)| *value)
}

/// A number with a unit, or of milliseconds.
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit_us = match text[digits..].trim() {
        "us" => 1,
        "" | "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        _ => return None,
    };
    number.checked_mul(unit_us).map(Duration::from_micros)
}

/// A wait for a group commit.
fn wait(text: &str) -> Option<Duration> {
    time(text).filter(|wait| *wait <= rialto::log::group_commit::WAIT_MAX)
}

/// As PostgreSQL shows times: in the largest unit that has no fraction.
pub(super) fn show_wait(wait: Duration) -> String {
    match wait.as_micros() {
        0 => "0".to_string(),
        us if us % 1_000_000 == 0 => format!("{}s", us / 1_000_000),
        us if us % 1_000 == 0 => format!("{}ms", us / 1_000),
        us => format!("{us}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &mut Settings, name: &str, value: &str) -> Result<()> {
        let name = Name { text: name.to_string(), position: None };
        settings.set(&name, &SetValue::Text(value.to_string()), &Settings::default())
    }

    #[test]
    fn what_is_set_is_shown() {
        let mut settings = Settings::default();
        set(&mut settings, "rialto.durability", "memory").unwrap();
        assert_eq!(settings.show("rialto.durability", false), "memory");
        set(&mut settings, "lock_timeout", "1500").unwrap();
        assert_eq!(settings.show("lock_timeout", false), "1500ms");
        set(&mut settings, "lock_timeout", "2s").unwrap();
        assert_eq!(settings.lock_timeout, Duration::from_secs(2));
        set(&mut settings, "rialto.willing_to_wait", "90").unwrap();
        assert_eq!(settings.show("rialto.willing_to_wait", false), "90ms");
        assert_eq!(settings.show("rialto.commit_stall", false), "default");
        set(&mut settings, "rialto.commit_stall", "250us").unwrap();
        assert_eq!(
            (settings.show("rialto.commit_stall", false).as_str(), settings.commit_stall),
            ("250us", Some(Duration::from_micros(250)))
        );
        set(&mut settings, "rialto.commit_stall", "default").unwrap();
        assert_eq!(settings.commit_stall, None);
        set(&mut settings, "lock_timeout", "0").unwrap();
        assert_eq!(settings.show("lock_timeout", false), "0");
        for (value, shown) in [("500ms", "500ms"), ("2s", "2s"), ("0", "off"), ("off", "off")] {
            set(&mut settings, READ_STALENESS, value).unwrap();
            assert_eq!(settings.show(READ_STALENESS, false), shown);
        }
        set(&mut settings, READ_AFTER, "a7:3.17.12345").unwrap();
        assert_eq!(settings.show(READ_AFTER, false), "a7:3.17.12345");
        for (name, value) in [
            (READ_STALENESS, "old"),
            (READ_STALENESS, "-1"),
            (READ_AFTER, "3.17.12345"),
            (READ_AFTER, "a7:3.17"),
        ] {
            let error = set(&mut settings, name, value).unwrap_err();
            assert_eq!(error.sqlstate.code(), "22023", "{name} {value}");
        }
        assert_eq!(set(&mut settings, COMMIT_POSITION, "").unwrap_err().sqlstate.code(), "55P02");
    }

    #[test]
    fn every_isolation_level_is_serializable() {
        let mut settings = Settings::default();
        set(&mut settings, "default_transaction_isolation", "read committed").unwrap();
        assert_eq!(settings.show("default_transaction_isolation", false), "serializable");
        assert!(set(&mut settings, "default_transaction_isolation", "chaos").is_err());
    }

    #[test]
    fn a_fixed_setting_takes_its_own_value_only() {
        let mut settings = Settings::default();
        set(&mut settings, "datestyle", "ISO").unwrap();
        set(&mut settings, "standard_conforming_strings", "true").unwrap();
        assert_eq!(set(&mut settings, "timezone", "Europe/Zurich").unwrap_err().sqlstate.code(), "55P02");
        assert_eq!(set(&mut settings, "no_such_thing", "1").unwrap_err().sqlstate.code(), "42704");
        for wait in ["-1", "an hour", "61s", "18446744073709551615min"] {
            let error = set(&mut settings, "rialto.willing_to_wait", wait).unwrap_err();
            assert_eq!(error.sqlstate.code(), "22023", "{wait}");
        }
        assert_eq!(set(&mut settings, NODES, "").unwrap_err().sqlstate.code(), "55P02");
        assert_eq!(set(&mut settings, RAISE_STALLS, "1ms").unwrap_err().sqlstate.code(), "55P02");
        assert_eq!(set(&mut settings, "rialto.durability", "paper").unwrap_err().sqlstate.code(), "22023");
    }

    #[test]
    fn a_boolean_has_many_spellings() {
        for text in ["on", "ON", "true", "TRUE", "t", "tr", "y", "Yes", "1"] {
            assert_eq!(boolean(text), Some(true), "{text}");
        }
        for text in ["off", "OF", "false", "F", "n", "No", "0"] {
            assert_eq!(boolean(text), Some(false), "{text}");
        }
        for text in ["", "o", "banana", "2", "truee", "10"] {
            assert_eq!(boolean(text), None, "{text}");
        }
    }

    #[test]
    fn every_setting_can_be_shown() {
        for name in names() {
            let shown = Settings::default().show(name, false);
            // Tests of the database tell of the database's own settings, and those of a cluster of the cluster's.
            let elsewhere = ["application_name", READ_AFTER].contains(&name)
                || SYSTEM.contains(&name)
                || CLUSTER.contains(&name);
            assert!(!shown.is_empty() || elsewhere, "{name}");
        }
    }
}
