//! COPY, with its options in both of PostgreSQL's notations: in parentheses, and as words behind the direction.

use sqlparser::tokenizer::Token;

use super::Name;
use super::cursor::Cursor;
use crate::error::{Result, SqlError, SqlState};

/// COPY.
#[derive(Debug, Clone)]
pub struct Copy {
    /// The table.
    pub table: Name,
    /// Its columns; none means all.
    pub columns: Vec<Name>,
    /// The direction.
    pub direction: CopyDirection,
    /// The form of the data.
    pub format: CopyFormat,
    /// The character between values.
    pub delimiter: u8,
    /// The string for null.
    pub null: String,
    /// What the first line is.
    pub header: CopyHeader,
    /// The character around values of a CSV.
    pub quote: u8,
    /// The character before a quote, or before itself, within quotes of a CSV.
    pub escape: u8,
    /// Columns whose values are always quoted.
    pub force_quote: ForceQuote,
    /// Columns in which a quoted null string is null, too.
    pub force_null: Vec<Name>,
    /// Columns that have no nulls: the null string is a text.
    pub force_not_null: Vec<Name>,
}

/// The direction of a COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyDirection {
    /// From the client.
    FromStdin,
    /// To the client.
    ToStdout,
}

/// The form of a COPY's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFormat {
    /// Lines with escapes.
    Text,
    /// Lines with quotes.
    Csv,
    /// Values in their binary forms.
    Binary,
}

/// What the first line of a COPY's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyHeader {
    /// A row.
    Absent,
    /// The names of the columns.
    Present,
    /// The names of the columns, which are compared.
    Match,
}

/// The columns whose values are quoted even if they need no quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForceQuote {
    /// These.
    Columns(Vec<Name>),
    /// All.
    All,
}

/// The options as they are written.
#[derive(Default)]
struct Options {
    format: Option<CopyFormat>,
    freeze: Option<bool>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<CopyHeader>,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Option<ForceQuote>,
    force_null: Option<Vec<Name>>,
    force_not_null: Option<Vec<Name>>,
    encoding: Option<String>,
}

/// Reads what is behind the word COPY.
pub(super) fn copy(cursor: &mut Cursor<'_>) -> Result<Copy> {
    let position = cursor.position();
    if cursor.peek_is(&Token::LParen) {
        return Err(SqlError::unsupported("COPY of a query").at(position));
    }
    let mut options = Options::default();
    if cursor.take("BINARY") {
        options.format = Some(CopyFormat::Binary);
    }
    let table = cursor.object()?;
    let columns = if cursor.peek_is(&Token::LParen) { cursor.column_list()? } else { Vec::new() };
    let direction = direction(cursor)?;
    if cursor.take_all(&["USING", "DELIMITERS"]) || cursor.take("DELIMITERS") {
        options.delimiter = Some(cursor.string()?);
    }
    cursor.take("WITH");
    if cursor.take_token(&Token::LParen) {
        cursor.list(|cursor| options.named(cursor, direction))?;
        cursor.expect_token(&Token::RParen)?;
    } else {
        while options.word(cursor)? {}
    }
    let position = cursor.position();
    if cursor.take("WHERE") {
        return Err(SqlError::unsupported("COPY ... WHERE").at(position));
    }
    options.checked(table, columns, direction)
}

fn direction(cursor: &mut Cursor<'_>) -> Result<CopyDirection> {
    let from = cursor.take("FROM");
    if !from {
        cursor.expect("TO")?;
    }
    let position = cursor.position();
    if from && cursor.take("STDIN") {
        Ok(CopyDirection::FromStdin)
    } else if !from && cursor.take("STDOUT") {
        Ok(CopyDirection::ToStdout)
    } else if cursor.take("PROGRAM") {
        Err(SqlError::unsupported("COPY with a program").at(position))
    } else if cursor.string().is_ok() {
        Err(SqlError::unsupported("COPY with a file of the server").at(position))
    } else {
        Err(cursor.unexpected(if from { "STDIN" } else { "STDOUT" }))
    }
}

/// Keeps the value of an option that was not given before.
fn once<T>(option: &mut Option<T>, value: T, position: Option<usize>) -> Result<()> {
    if option.is_some() {
        let message = "conflicting or redundant options";
        return Err(SqlError::new(SqlState::SyntaxError, message).at(position));
    }
    *option = Some(value);
    Ok(())
}

impl Options {
    /// Reads an option in parentheses: its name and its value.
    fn named(&mut self, cursor: &mut Cursor<'_>, direction: CopyDirection) -> Result<()> {
        let position = cursor.position();
        let option = cursor.name()?.text;
        match option.as_str() {
            "format" => {
                let format = cursor.literal()?;
                let format = match format.to_ascii_lowercase().as_str() {
                    "text" => CopyFormat::Text,
                    "csv" => CopyFormat::Csv,
                    "binary" => CopyFormat::Binary,
                    _ => {
                        let message = format!("COPY format \"{format}\" not recognized");
                        return Err(invalid(message).at(position));
                    }
                };
                once(&mut self.format, format, position)
            }
            "freeze" => once(&mut self.freeze, boolean(cursor)?, position),
            "header" => once(&mut self.header, header(cursor, direction)?, position),
            "delimiter" => once(&mut self.delimiter, cursor.string()?, position),
            "null" => once(&mut self.null, cursor.string()?, position),
            "quote" => once(&mut self.quote, cursor.string()?, position),
            "escape" => once(&mut self.escape, cursor.string()?, position),
            "encoding" => once(&mut self.encoding, encoding(cursor)?, position),
            "force_quote" => {
                let columns = match cursor.take_token(&Token::Mul) {
                    true => ForceQuote::All,
                    false => ForceQuote::Columns(cursor.column_list()?),
                };
                once(&mut self.force_quote, columns, position)
            }
            "force_null" => once(&mut self.force_null, cursor.column_list()?, position),
            "force_not_null" => once(&mut self.force_not_null, cursor.column_list()?, position),
            other => {
                let message = format!("option \"{other}\" not recognized");
                Err(SqlError::new(SqlState::SyntaxError, message).at(position))
            }
        }
    }

    /// Reads an option without parentheses, if there is one more.
    fn word(&mut self, cursor: &mut Cursor<'_>) -> Result<bool> {
        let position = cursor.position();
        let string = |cursor: &mut Cursor<'_>| {
            cursor.take("AS");
            cursor.string()
        };
        if cursor.take("BINARY") {
            once(&mut self.format, CopyFormat::Binary, position)?;
        } else if cursor.take("CSV") {
            once(&mut self.format, CopyFormat::Csv, position)?;
        } else if cursor.take("FREEZE") {
            once(&mut self.freeze, true, position)?;
        } else if cursor.take("HEADER") {
            once(&mut self.header, CopyHeader::Present, position)?;
        } else if cursor.take("DELIMITER") {
            once(&mut self.delimiter, string(cursor)?, position)?;
        } else if cursor.take("NULL") {
            once(&mut self.null, string(cursor)?, position)?;
        } else if cursor.take("QUOTE") {
            once(&mut self.quote, string(cursor)?, position)?;
        } else if cursor.take("ESCAPE") {
            once(&mut self.escape, string(cursor)?, position)?;
        } else if cursor.take("ENCODING") {
            once(&mut self.encoding, encoding(cursor)?, position)?;
        } else if cursor.take_all(&["FORCE", "QUOTE"]) {
            let columns = match cursor.take_token(&Token::Mul) {
                true => ForceQuote::All,
                false => ForceQuote::Columns(cursor.list(Cursor::name)?),
            };
            once(&mut self.force_quote, columns, position)?;
        } else if cursor.take_all(&["FORCE", "NOT", "NULL"]) {
            once(&mut self.force_not_null, cursor.list(Cursor::name)?, position)?;
        } else if cursor.take_all(&["FORCE", "NULL"]) {
            once(&mut self.force_null, cursor.list(Cursor::name)?, position)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The COPY with these options, if they fit together.
    fn checked(self, table: Name, columns: Vec<Name>, direction: CopyDirection) -> Result<Copy> {
        let format = self.format.unwrap_or(CopyFormat::Text);
        let (csv, from) = (format == CopyFormat::Csv, direction == CopyDirection::FromStdin);
        if format == CopyFormat::Binary {
            for (given, option) in [(self.delimiter.is_some(), "DELIMITER"), (self.null.is_some(), "NULL")] {
                if given {
                    let message = format!("cannot specify {option} in BINARY mode");
                    return Err(SqlError::new(SqlState::SyntaxError, message));
                }
            }
        }
        let header = self.header.unwrap_or(CopyHeader::Absent);
        let refused = [
            (
                format == CopyFormat::Binary && header != CopyHeader::Absent,
                "cannot specify HEADER in BINARY mode",
            ),
            (self.quote.is_some() && !csv, "COPY quote available only in CSV mode"),
            (self.escape.is_some() && !csv, "COPY escape available only in CSV mode"),
            (self.force_quote.is_some() && !csv, "COPY force quote available only in CSV mode"),
            (self.force_quote.is_some() && from, "COPY force quote only available using COPY TO"),
            (self.force_not_null.is_some() && !csv, "COPY force not null available only in CSV mode"),
            (self.force_not_null.is_some() && !from, "COPY force not null only available using COPY FROM"),
            (self.force_null.is_some() && !csv, "COPY force null available only in CSV mode"),
            (self.force_null.is_some() && !from, "COPY force null only available using COPY FROM"),
        ];
        if let Some((_, message)) = refused.into_iter().find(|(found, _)| *found) {
            return Err(SqlError::new(SqlState::FeatureNotSupported, message));
        }
        let quote = one_byte("quote", self.quote.as_deref().unwrap_or("\""))?;
        let copy = Copy {
            table,
            columns,
            direction,
            format,
            delimiter: one_byte(
                "delimiter",
                self.delimiter.as_deref().unwrap_or(if csv { "," } else { "\t" }),
            )?,
            null: self.null.unwrap_or_else(|| if csv { "" } else { "\\N" }.to_string()),
            header,
            quote,
            escape: match &self.escape {
                Some(escape) => one_byte("escape", escape)?,
                None => quote,
            },
            force_quote: self.force_quote.unwrap_or(ForceQuote::Columns(Vec::new())),
            force_null: self.force_null.unwrap_or_default(),
            force_not_null: self.force_not_null.unwrap_or_default(),
        };
        check_characters(&copy)?;
        Ok(copy)
    }
}

/// Checks that values, nulls and lines can be told from each other.
fn check_characters(copy: &Copy) -> Result<()> {
    if copy.null.contains(['\r', '\n']) {
        return Err(invalid("COPY null representation cannot use newline or carriage return".to_string()));
    }
    if copy.null.as_bytes().contains(&copy.delimiter) {
        // A null field could not be told from two fields.
        return Err(SqlError::unsupported("a COPY delimiter that is in the NULL string"));
    }
    if copy.format == CopyFormat::Csv {
        if copy.delimiter == copy.quote {
            return Err(invalid("COPY delimiter and quote must be different".to_string()));
        }
        if copy.null.as_bytes().contains(&copy.quote) {
            return Err(SqlError::unsupported("a CSV quote that is in the NULL string"));
        }
        if copy.delimiter == b'\\' || copy.null == "\\." {
            // A line of such values would be the end marker.
            return Err(SqlError::unsupported(
                "a CSV delimiter or NULL string that is part of the end marker",
            ));
        }
        return Ok(());
    }
    if b"\\.abcdefghijklmnopqrstuvwxyz0123456789".contains(&copy.delimiter) {
        return Err(invalid(format!("COPY delimiter cannot be \"{}\"", char::from(copy.delimiter))));
    }
    if !is_whole(&copy.null) {
        return Err(SqlError::unsupported("a COPY NULL string that ends within an escape or has \\. in it"));
    }
    Ok(())
}

/// The byte of an option that is one character, and no end of a line.
fn one_byte(option: &str, text: &str) -> Result<u8> {
    match text.as_bytes() {
        [b'\r' | b'\n'] => Err(invalid(format!("COPY {option} cannot be newline or carriage return"))),
        [byte] => Ok(*byte),
        _ => {
            let message = format!("COPY {option} must be a single one-byte character");
            Err(SqlError::new(SqlState::FeatureNotSupported, message))
        }
    }
}

/// Whether a NULL string is read as it is written: no escape in it takes the character behind it, and none is the end
/// marker's.
fn is_whole(null: &str) -> bool {
    let mut bytes = null.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' && matches!(bytes.next(), None | Some(b'.')) {
            return false;
        }
    }
    true
}

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, message)
}

fn encoding(cursor: &mut Cursor<'_>) -> Result<String> {
    let position = cursor.position();
    let encoding = cursor.string()?;
    if !encoding.eq_ignore_ascii_case("utf8") && !encoding.eq_ignore_ascii_case("utf-8") {
        return Err(SqlError::unsupported(format!("COPY in encoding {encoding}")).at(position));
    }
    Ok(encoding)
}

fn header(cursor: &mut Cursor<'_>, direction: CopyDirection) -> Result<CopyHeader> {
    let position = cursor.position();
    if cursor.take("MATCH") {
        if direction == CopyDirection::ToStdout {
            let message = "cannot use \"match\" with HEADER in COPY TO";
            return Err(SqlError::new(SqlState::FeatureNotSupported, message).at(position));
        }
        return Ok(CopyHeader::Match);
    }
    Ok(if boolean(cursor)? { CopyHeader::Present } else { CopyHeader::Absent })
}

fn boolean(cursor: &mut Cursor<'_>) -> Result<bool> {
    if cursor.peek_is(&Token::Comma) || cursor.peek_is(&Token::RParen) {
        return Ok(true);
    }
    let position = cursor.position();
    match cursor.literal()?.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        other => Err(invalid(format!("\"{other}\" is no boolean: write on or off")).at(position)),
    }
}
