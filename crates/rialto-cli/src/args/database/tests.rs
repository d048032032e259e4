//! Each option of the command line reaches the option of the database that it names.

use std::fmt::Debug;

use clap::{Args, Parser};
use rialto::io::Caching;
use rialto::{Checkpointing, Durability, GroupCommitDesign, HandOver, LockGrain, Locks, TwoStage};

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    database: DatabaseArgs,
}

fn arguments(line: &str) -> DatabaseArgs {
    let words = std::iter::once("serve").chain(line.split_whitespace());
    Command::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).database
}

/// Reads one of the options, as text.
type Read = fn(&Options) -> String;

fn text(value: impl Debug) -> String {
    format!("{value:?}")
}

/// What each option sets: its value, how it is read, and what is read.
fn cases() -> Vec<(&'static str, &'static str, Read, String)> {
    let us = Duration::from_micros;
    vec![
        ("--durability", "memory", |o| text(o.durability), text(Durability::Memory)),
        ("--engine", "data-oriented", |o| text(o.engine), text(Engine::data_oriented())),
        ("--locks", "central", |o| text(o.engine), text(Engine::Conventional { locks: Locks::Central })),
        (
            "--executors",
            "7 --engine data-oriented",
            |o| text(o.engine.executors().map(|executors| executors.count)),
            text(Some(7)),
        ),
        (
            "--executor-threads",
            "3 --engine data-oriented",
            |o| text(o.engine.executors().map(|executors| executors.threads)),
            text(Some(3)),
        ),
        (
            "--hand-over",
            "always --executor-threads 1 --engine data-oriented",
            |o| text(o.engine.executors().map(|executors| executors.hand_over)),
            text(Some(HandOver::Always)),
        ),
        ("--group-commit", "hiber", |o| text(o.group_commit.design), text(GroupCommitDesign::Hiber)),
        ("--stall-us", "11", |o| text(o.group_commit.stall), text(Some(us(11)))),
        ("--willing-to-wait-us", "12", |o| text(o.group_commit.willing_to_wait), text(Some(us(12)))),
        ("--willing-to-wait-min-us", "13", |o| text(o.group_commit.willing_to_wait_min), text(Some(us(13)))),
        ("--wake-delay-us", "14", |o| text(o.group_commit.wake_delay), text(Some(us(14)))),
        ("--linger-us", "15", |o| text(o.group_commit.linger), text(Some(us(15)))),
        ("--group-max", "16", |o| text(o.group_commit.group_max), text(Some(16))),
        ("--log-writes", "direct-sync", |o| text(o.log_writes), text(Some(Caching::DirectSync))),
        ("--log-writes-in-flight", "2", |o| text(o.log_writes_in_flight), text(Some(2))),
        ("--log-bytes-max", "20000000", |o| text(o.log_bytes_max), text(20_000_000)),
        ("--log-buffer-bytes", "1048576", |o| text(o.log_buffer_bytes), text(1_048_576)),
        ("--checkpoint", "tccou", |o| text(o.checkpoint), text(Checkpointing::TransactionCopyOnUpdate)),
        ("--checkpoint-interval-s", "1.5", |o| text(o.checkpoint_interval), text(us(1_500_000))),
        ("--recovery-within-s", "20", |o| text(o.recovery_within), text(Some(us(20_000_000)))),
        ("--sweep-bytes-per-s", "17", |o| text(o.sweep_bytes_per_s), text(Some(17))),
        ("--spool", "=false", |o| text(o.spool), text(false)),
        ("--backup-copies", "3", |o| text(o.backup_copies), text(3)),
        ("--straddling-retry-us", "18 --checkpoint tcbw", |o| text(o.straddling_retry), text(us(18))),
        ("--straddling-hints", "=false --checkpoint tcbw", |o| text(o.straddling_hints), text(false)),
        ("--archive", "/a", |o| text(o.archive.as_ref().map(ToString::to_string)), text(Some("/a"))),
        ("--memory-bytes", "30000000", |o| text(o.memory_bytes), text(30_000_000)),
        ("--cache-bytes", "40000000", |o| text(o.cache_bytes), text(40_000_000)),
        ("--page-bytes", "8192", |o| text(o.page_bytes), text(8_192)),
        ("--lock-grain", "page --locks central", |o| text(o.lock_grain), text(LockGrain::Page)),
        ("--two-stage", "2pl", |o| text(o.two_stage), text(TwoStage::TwoPhaseLocking)),
    ]
}

#[test]
fn each_option_reaches_the_database() {
    let defaults = arguments("").options();
    for (option, value, read, expected) in cases() {
        let space = if value.starts_with('=') { "" } else { " " };
        let options = arguments(&format!("{option}{space}{value}")).options();
        assert_eq!(read(&options), expected, "{option}");
        assert_ne!(read(&defaults), expected, "{option} has to change something");
    }
}

#[test]
fn no_option_is_left_out_above_and_the_defaults_are_the_librarys() {
    let command = DatabaseArgs::augment_args(clap::Command::new("serve"));
    let named: Vec<String> = cases().iter().map(|(option, ..)| option[2..].to_owned()).collect();
    let known: Vec<String> =
        command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect();
    assert!(known.iter().all(|option| named.contains(option)), "{known:?} {named:?}");
    assert_eq!(known.len(), named.len());
    let (ours, library) = (arguments("").options(), Options::default());
    for (option, _, read, _) in cases() {
        assert_eq!(read(&ours), read(&library), "{option}");
    }
}
