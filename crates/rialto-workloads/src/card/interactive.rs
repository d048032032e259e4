//! The message server for people (the paper's interactive message server): it prompts for requests, puts each on the
//! transaction server's queue, and shows the response.

use std::io::{BufRead, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use rialto::Error;
use rialto::row::Date;

use super::flows::Answer;
use super::request::{Name, Request};
use super::servers::Interactive;
use super::{ADDRESS_BYTES, CardServers, Shape, Totals};

const PROMPT: &str = "card> ";
const HELP: &str = "\
BAL account                   balance check
CCCK account store            credit card check
CLCK account store amount     credit limit check
DEBIT account store amount    purchase
PAY account amount            payment
MOVE account address          change of a customer's address
LOST account                  report of a lost card
FOUND account                 a card that was found again
help                          this list
quit                          ends, as the end of the input does";
const MICROS_PER_DAY: u128 = 86_400_000_000;

/// What a line asks for.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Nothing,
    Help,
    Quit,
    Request(Request<'a>),
}

/// The day that requests are of: transactions are told it.
fn today() -> Date {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Date((micros / MICROS_PER_DAY) as i32)
}

/// Why no more requests are read.
#[derive(Debug)]
pub enum Ended {
    /// The input could not be read, or a response not be written.
    Io(std::io::Error),
    /// A request failed.
    Failed(Error),
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Ended {
        Ended::Io(error)
    }
}

/// Answers each line of `input` on `out`, with a prompt before each on `prompts`, until the input ends. Returns what the
/// responses add up to.
///
/// # Errors
/// What ends it before the input does. A request that there is not, or that aborts, does not.
pub fn serve(
    servers: &CardServers,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    prompts: &mut dyn Write,
) -> Result<Totals, Ended> {
    let mut server = servers.interactive(today());
    answer(&mut server, input, out, prompts)?;
    Ok(server.done())
}

/// Likewise, at a message server.
pub(super) fn answer(
    server: &mut Interactive<'_>,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    prompts: &mut dyn Write,
) -> Result<(), Ended> {
    let mut line = Vec::new();
    loop {
        write!(prompts, "{PROMPT}")?;
        prompts.flush()?;
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            writeln!(prompts)?;
            return Ok(());
        }
        let text = std::str::from_utf8(&line).map_err(|_| "the request is not UTF-8 text".to_owned());
        match text.and_then(|line| read(line, &server.shape(), server.today)) {
            Ok(Line::Nothing) => {}
            Ok(Line::Quit) => return Ok(()),
            Ok(Line::Help) => writeln!(out, "{HELP}")?,
            Ok(Line::Request(request)) => {
                let mut shown = Ok(());
                let asked = server.ask(&request, |Answer { response, name }| {
                    shown = match name {
                        Some(name) => writeln!(out, "{}: {response}", name.trim_end()),
                        None => writeln!(out, "{response}"),
                    };
                });
                match asked {
                    Ok(()) => shown?,
                    Err(Error::Aborted { reason }) => writeln!(out, "error: {reason}")?,
                    Err(error) => return Err(Ended::Failed(error)),
                }
            }
            Err(problem) => writeln!(out, "error: {problem}")?,
        }
        out.flush()?;
    }
}

/// What a line asks for.
///
/// # Errors
/// What is wrong with it, and what was expected.
fn read<'a>(line: &'a str, shape: &Shape, today: Date) -> Result<Line<'a>, String> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    if word.is_empty() {
        return Ok(Line::Nothing);
    }
    if word.eq_ignore_ascii_case("help") {
        return Ok(Line::Help);
    }
    if word.eq_ignore_ascii_case("quit") {
        return Ok(Line::Quit);
    }
    let name: Name = word.parse().map_err(|problem| format!("{problem}, help and quit"))?;
    let usage = usage(name);
    let account = |text: &str| number("account", text, shape.accounts);
    let store = |text: &str| number("store", text, shape.stores());
    let request = if name == Name::Move {
        let (number, address) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let address = address.trim();
        if address.is_empty() {
            return Err(format!("expected \"{usage}\", found \"{line}\""));
        }
        if address.len() > ADDRESS_BYTES {
            let bytes = address.len();
            return Err(format!("the address has {bytes} bytes, expected at most {ADDRESS_BYTES}"));
        }
        Request::Move { account: account(number)?, address }
    } else {
        let words: Vec<&str> = rest.split_whitespace().collect();
        match (name, &words[..]) {
            (Name::Bal, [number]) => Request::Balance { account: account(number)? },
            (Name::Ccck, [number, at]) => {
                Request::CardCheck { account: account(number)?, store: store(at)?, today }
            }
            (Name::Clck, [number, at, amount]) => {
                Request::LimitCheck { account: account(number)?, store: store(at)?, cents: cents(amount)? }
            }
            (Name::Debit, [number, at, amount]) => {
                Request::Debit { account: account(number)?, store: store(at)?, cents: cents(amount)? }
            }
            (Name::Pay, [number, amount]) => {
                Request::Payment { account: account(number)?, cents: cents(amount)? }
            }
            (Name::Lost, [number]) => Request::Lost { account: account(number)?, today },
            (Name::Found, [number]) => Request::Found { account: account(number)? },
            _ => return Err(format!("expected \"{usage}\", found \"{line}\"")),
        }
    };
    Ok(Line::Request(request))
}

/// How a request is written.
fn usage(name: Name) -> &'static str {
    match name {
        Name::Bal => "BAL account",
        Name::Ccck => "CCCK account store",
        Name::Clck => "CLCK account store amount",
        Name::Debit => "DEBIT account store amount",
        Name::Pay => "PAY account amount",
        Name::Move => "MOVE account address",
        Name::Lost => "LOST account",
        Name::Found => "FOUND account",
    }
}

fn number(what: &str, text: &str, count: u32) -> Result<i32, String> {
    let number = text.parse().ok().filter(|number| (0..count as i32).contains(number));
    number.ok_or_else(|| format!("there is no {what} \"{text}\", expected a number from 0 to {}", count - 1))
}

/// An amount with up to two digits behind the point.
fn cents(text: &str) -> Result<i64, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_amount = !whole.is_empty() && whole.len() <= 9 && part.len() <= 2 && digits(whole) && digits(part);
    let cents = is_amount.then(|| format!("{whole}{part:0<2}").parse().ok()).flatten();
    cents
        .filter(|cents| *cents > 0)
        .ok_or_else(|| format!("\"{text}\" is no amount, expected one above zero, such as 19.90"))
}

#[cfg(test)]
mod tests {
    use super::super::request::TODAY;
    use super::*;

    fn line(text: &str) -> Result<Line<'_>, String> {
        read(text, &Shape::of_scale(1), TODAY)
    }

    #[test]
    fn requests_are_read_in_any_case() {
        for (text, request) in [
            ("BAL 123", Request::Balance { account: 123 }),
            (" ccck  0 4999 ", Request::CardCheck { account: 0, store: 4_999, today: TODAY }),
            ("CLCK 1 2 3", Request::LimitCheck { account: 1, store: 2, cents: 300 }),
            ("DEBIT 123 45 19.90", Request::Debit { account: 123, store: 45, cents: 1_990 }),
            ("PAY 39999 0.5", Request::Payment { account: 39_999, cents: 50 }),
            ("Move 7 5 Elm Street", Request::Move { account: 7, address: "5 Elm Street" }),
            ("LOST 9", Request::Lost { account: 9, today: TODAY }),
            ("FOUND 9", Request::Found { account: 9 }),
        ] {
            assert_eq!(line(text), Ok(Line::Request(request)), "{text}");
        }
        assert_eq!(
            (line(" \n"), line("HELP"), line("quit")),
            (Ok(Line::Nothing), Ok(Line::Help), Ok(Line::Quit))
        );
        assert!(Name::ALL.into_iter().all(|name| HELP.contains(usage(name))));
    }

    #[test]
    fn a_bad_request_is_told_what_was_expected() {
        for (text, named) in [
            ("STEAL 1", "there are BAL, CCCK, CLCK, DEBIT, PAY, MOVE, LOST, FOUND, help and quit"),
            ("BAL", "expected \"BAL account\", found \"BAL\""),
            ("DEBIT 1 2", "expected \"DEBIT account store amount\""),
            ("BAL 40000", "there is no account \"40000\", expected a number from 0 to 39999"),
            ("BAL -1", "there is no account \"-1\""),
            ("CCCK 1 5000", "there is no store \"5000\", expected a number from 0 to 4999"),
            ("PAY 1 much", "\"much\" is no amount"),
            ("PAY 1 0", "\"0\" is no amount, expected one above zero"),
            ("PAY 1 1.999", "\"1.999\" is no amount"),
            ("PAY 1 -5", "\"-5\" is no amount"),
            ("PAY 1 99999999999999999999", "is no amount"),
            ("MOVE 1", "expected \"MOVE account address\""),
        ] {
            let problem = line(text).unwrap_err();
            assert!(problem.contains(named), "{text}: {problem}");
        }
        let long = format!("MOVE 1 {}", "x".repeat(ADDRESS_BYTES + 1));
        assert!(line(&long).unwrap_err().contains("the address has 116 bytes, expected at most 115"));
    }
}
