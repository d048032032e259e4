//! Checks that clap cannot make: options that do not apply to a workload, or that do not go
//! together.

use rialto::Logging;
use rialto::io::SimulatedDisk;
use rialto_measure::RunError;
use rialto_workloads::{card, tatp, tpcc};

use super::{BenchArgs, DiskName, LoggingName, PACKETS_MAX, PACKETS_SPARE, ResidenceName, WorkloadName};
use crate::args::{CheckpointName, DurabilityName, EngineName};

/// The options that bare commit sequences take.
const COMMIT_OPTIONS: [&str; 22] = [
    "workload",
    "clients",
    "in-flight",
    "seconds",
    "warmup",
    "repeat",
    "group-commit",
    "stall-us",
    "willing-to-wait-us",
    "willing-to-wait-min-us",
    "wake-delay-us",
    "linger-us",
    "group-max",
    "log-writes",
    "log-writes-in-flight",
    "disk",
    "data",
    "seed",
    "json",
    "limits",
    "versus",
    "versus-binary",
];

/// The largest scale of card: its accounts are numbered by 31 bits.
const CARD_SCALE_MAX: u32 = 50_000;
/// The largest of tatp, likewise.
const TATP_SCALE_MAX: u32 = 200_000;

/// What is of System M's servers.
const SERVER_OPTIONS: [&str; 4] = ["servers", "message-servers", "queue", "standbys"];
/// What is of clients that run their own transactions.
const CLIENT_OPTIONS: [&str; 4] = ["clients", "in-flight", "rate", "limits"];

/// What says how to measure.
const MEASURING_OPTIONS: [&str; 14] = [
    "servers",
    "message-servers",
    "clients",
    "in-flight",
    "rate",
    "seconds",
    "warmup",
    "repeat",
    "mix",
    "seed",
    "json",
    "limits",
    "versus",
    "versus-binary",
];

impl BenchArgs {
    /// Refuses what clap cannot see: options that do not go together.
    ///
    /// # Errors
    /// [`RunError::Usage`], naming the option and what is available.
    pub fn check(&self) -> Result<(), RunError> {
        let usage = |text: String| Err(RunError::Usage(text));
        if self.residence == ResidenceName::Memory
            && let Some(option) = self.database.pages.given().next()
        {
            return usage(format!("{option} is for tables on disk; available: --residence disk"));
        }
        if self.disk == DiskName::Memory && self.data.is_some() {
            return usage(
                "--data does not apply to --disk memory; available: --disk file --data DIR".to_owned(),
            );
        }
        match (self.workload, &self.disk) {
            (
                WorkloadName::Tpcb | WorkloadName::Card | WorkloadName::Tatp | WorkloadName::Tpcc,
                DiskName::Simulated(name),
            ) if SimulatedDisk::names().all(|(preset, _)| preset != name) => {
                return usage(format!(
                    "--disk sim:{name} is a regime of virtual time, which only commit runs in; available:{}",
                    self.workload.disks()
                ));
            }
            (WorkloadName::Commit, _) => self.check_commit().map_err(RunError::Usage)?,
            _ => {}
        }
        if self.limits && self.rate.is_some() {
            return usage(
                "--limits does not apply to --rate, an open loop that bare code would keep up with; available: closed \
                 loops, --clients and --in-flight"
                    .to_owned(),
            );
        }
        if let Some(misuse) = self.database.misuse() {
            return usage(misuse);
        }
        if self.seconds.is_zero() {
            return usage("--seconds 0 measures nothing; give a time above zero".to_owned());
        }
        self.check_virtual().map_err(RunError::Usage)?;
        self.check_sizes().map_err(RunError::Usage)?;
        self.check_transactions().map_err(RunError::Usage)?;
        let outstanding = self.outstanding();
        if outstanding + PACKETS_SPARE > PACKETS_MAX {
            return usage(format!(
                "--clients {} with --in-flight {} are {outstanding} transactions in flight; at most {} can be",
                self.clients,
                self.in_flight,
                PACKETS_MAX - PACKETS_SPARE
            ));
        }
        if self.logging == LoggingName::None && self.database.checkpoint != CheckpointName::None {
            return usage(
                "--logging none needs --checkpoint none: a copy made while transactions run is made whole by the log"
                    .to_owned(),
            );
        }
        if self.residence == ResidenceName::Disk && self.logging == LoggingName::Transaction {
            return usage(
                "--logging transaction does not apply to --residence disk; available: --logging value, action".to_owned(),
            );
        }
        if self.logging != LoggingName::None
            && let Some(reason) = Logging::from(self.logging).refuses(self.database.checkpoint.into())
        {
            return usage(format!("--logging transaction needs --checkpoint tccou, tcbw or none: {reason}"));
        }
        Ok(())
    }

    /// What a virtual machine does not take.
    fn check_virtual(&self) -> Result<(), String> {
        if !self.is_virtual() {
            return match self.run_us {
                Some(_) => {
                    Err("--run-us applies to virtual seconds alone; available: --disk sim:charm".to_owned())
                }
                None => Ok(()),
            };
        }
        let needs = [
            (self.residence == ResidenceName::Disk, "--residence disk"),
            (self.database.engine == EngineName::Conventional, "--engine conventional"),
            (self.database.durability == DurabilityName::Memory, "--durability memory"),
            (self.database.checkpoint == CheckpointName::None, "--checkpoint none"),
            (self.in_flight == 1, "--in-flight 1"),
            (self.rate.is_none(), "a closed loop, without --rate"),
            (!self.limits, "no --limits"),
            (!self.servers && !self.interactive, "clients that run their own transactions"),
        ];
        match needs.iter().find(|(is_so, _)| !is_so) {
            Some((_, needed)) => {
                Err(format!("--disk sim:charm runs in virtual seconds, which takes {needed}"))
            }
            None => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<(), String> {
        let (scale, accounts) = (self.scale(), self.accounts());
        if self.workload == WorkloadName::Tpcc {
            self.check_warehouses()?;
        } else if let Some(option) = ["items", "customers"].iter().find(|name| self.given.has(name)) {
            return Err(format!("--{option} does not apply to {}; available: tpcc", self.workload.name()));
        }
        let is_tatp = self.workload == WorkloadName::Tatp;
        if is_tatp && self.accounts.is_some() {
            return Err("--accounts does not apply to tatp; available: --subscribers, --scale".to_owned());
        }
        if !is_tatp && self.subscribers.is_some() {
            return Err(format!("--subscribers does not apply to {}; available: tatp", self.workload.name()));
        }
        if self.subscribers.is_some() && self.scale.is_some() {
            return Err(
                "--scale and --subscribers both say how many subscribers there are; give one".to_owned()
            );
        }
        match self.workload {
            WorkloadName::Tatp if scale > TATP_SCALE_MAX => {
                Err(format!("--scale {scale} is too large for tatp; give at most --scale {TATP_SCALE_MAX}"))
            }
            WorkloadName::Card if scale > CARD_SCALE_MAX => {
                Err(format!("--scale {scale} is too large for card; give at most --scale {CARD_SCALE_MAX}"))
            }
            WorkloadName::Card if accounts < card::Shape::accounts_min(scale) => Err(format!(
                "--accounts {accounts} is fewer than one for each card that gets lost and found at --scale {scale}; give \
                 at least --accounts {}",
                card::Shape::accounts_min(scale)
            )),
            WorkloadName::Tpcb if accounts < scale => Err(format!(
                "--accounts {accounts} is fewer than one for each of {scale} branches; give at least --accounts {scale}"
            )),
            _ => Ok(()),
        }
    }

    /// Whether TPC-C's tables fit.
    fn check_warehouses(&self) -> Result<(), String> {
        if self.accounts.is_some() {
            return Err("--accounts does not apply to tpcc; available: --scale, its warehouses".to_owned());
        }
        if self.scale() > tpcc::WAREHOUSES_MAX {
            let most = tpcc::WAREHOUSES_MAX;
            return Err(format!(
                "--scale {} is too large for tpcc; give at most --scale {most}",
                self.scale()
            ));
        }
        let (bytes, limit) = (self.tpcc_shape().memory_bytes(), self.options().memory_bytes);
        if bytes > limit && self.residence == ResidenceName::Memory {
            return Err(format!(
                "--scale {} warehouses take about {bytes} bytes, and tables may have {limit} (--memory-bytes): give fewer, \
                 or more memory",
                self.scale()
            ));
        }
        Ok(())
    }

    /// Which transactions run, and which clients run them.
    fn check_transactions(&self) -> Result<(), String> {
        let name = self.workload.name();
        match self.workload {
            WorkloadName::Card => self.mix_of::<card::Name>().map(drop)?,
            WorkloadName::Tatp => self.mix_of::<tatp::Name>().map(drop)?,
            WorkloadName::Tpcc => self.mix_of::<tpcc::Name>().map(drop)?,
            WorkloadName::Tpcb | WorkloadName::Commit if self.mix.is_some() => {
                return Err(format!(
                    "--mix does not apply to {name}, which is one transaction type and takes no mix; available: card, tatp, tpcc"
                ));
            }
            WorkloadName::Tpcb | WorkloadName::Commit => {}
        }
        if self.workload == WorkloadName::Card {
            self.check_card()?;
        } else if self.interactive {
            return Err(format!("--interactive does not apply to {name}; available: card"));
        } else if let Some(option) = SERVER_OPTIONS.iter().find(|name| self.given.has(name)) {
            return Err(format!("--{option} does not apply to {name}; available: card"));
        }
        let has_bound = matches!(self.workload, WorkloadName::Tpcb | WorkloadName::Commit)
            || self.residence == ResidenceName::Disk;
        if self.limits
            && !has_bound
            && (self.in_flight > 1 || self.database.durability == DurabilityName::Memory)
        {
            return Err(format!(
                "--limits does not apply to {name} with tickets or --durability memory: the bare map with a log runs TPC-B; \
                 available: --in-flight 1 --durability disk, --residence disk"
            ));
        }
        Ok(())
    }

    /// What cards do not take.
    fn check_card(&self) -> Result<(), String> {
        if let Some(option) =
            ["message-servers", "queue", "standbys"].iter().find(|name| self.given.has(name))
            && !self.servers
            && !self.interactive
        {
            return Err(format!(
                "--{option} applies to --servers only, which puts the load on a request queue"
            ));
        }
        if self.servers
            && let Some(option) = CLIENT_OPTIONS.iter().find(|name| self.given.has(name))
        {
            return Err(format!(
                "--{option} does not apply to --servers, whose message servers put as many requests on the queue as it \
                 takes; available: --message-servers, --queue, --standbys"
            ));
        }
        if self.interactive
            && let Some(name) = self.given.0.iter().find(|name| MEASURING_OPTIONS.contains(&name.as_str()))
        {
            return Err(format!(
                "--{name} does not apply to --interactive, which runs what it is asked for and measures nothing"
            ));
        }
        Ok(())
    }

    /// What bare commit sequences do not take.
    fn check_commit(&self) -> Result<(), String> {
        if let Some(other) = self.given.0.iter().find(|name| !COMMIT_OPTIONS.contains(&name.as_str())) {
            let available: Vec<String> = COMMIT_OPTIONS[1..].iter().map(|name| format!("--{name}")).collect();
            return Err(format!(
                "--{other} does not apply to commit, which has no tables and runs closed loops that wait for the disk; \
                 available: {}",
                available.join(", ")
            ));
        }
        if self.regime().is_some() {
            for option in ["data", "limits", "log-writes", "log-writes-in-flight"] {
                if self.given.has(option) {
                    return Err(format!(
                        "--{option} does not apply to commit in virtual time (--disk {}), which uses no device; \
                         available: --disk file",
                        self.disk
                    ));
                }
            }
        }
        if self.limits && self.in_flight > 1 {
            return Err(
                "--limits does not apply to commit with tickets: the bare map with a log runs TPC-B; available: \
                 --in-flight 1"
                    .to_owned(),
            );
        }
        Ok(())
    }
}
