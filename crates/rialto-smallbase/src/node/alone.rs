//! The same transactions on a database without a cluster, in this process: what a node is compared with.

use std::sync::Arc;

use rialto::{Database, Durability, Error, ProcedureId, TxOptions};
use rialto_measure::text::say;
use rialto_measure::{RunError, interrupt};

use super::clients::{self, Ended, Site, Target};
use super::counting::{Counted, count_alone};
use crate::homes::Homes;
use crate::outcome::{Point, Ran};
use crate::spec::{Level, Load, Spec};
use crate::workload::{self, Audit, Drawn, Told, Workload};

/// A database, and the workload on it.
struct Alone {
    db: Database,
    workload: Arc<dyn Workload>,
    /// Of the time account.
    procedure: ProcedureId,
}

impl Target for Alone {
    fn transact(&self, drawn: Drawn, level: Level) -> Result<Ended, String> {
        let durability = if level == Level::Disk { Durability::Disk } else { Durability::Memory };
        let options = TxOptions {
            durability: Some(durability),
            procedure: Some(self.procedure),
            read_only: !self.workload.writes(drawn.kind),
            ..TxOptions::default()
        };
        let ran = self.db.transact_with(&options, |tx| self.workload.run(tx, drawn.kind, &drawn.arguments));
        match ran {
            Ok(()) => Ok(Ended::Answered),
            Err(Error::OutcomeUnknown { .. }) => Ok(Ended::Unknown),
            Err(error) if error.is_of_the_moment() => Ok(Ended::Aborted),
            Err(error) => Err(error.to_string()),
        }
    }

    fn count(&self) -> Counted {
        count_alone(&self.db)
    }
}

/// Fills the tables of a database in the directory, and runs the load so often.
///
/// # Errors
/// [`RunError`].
pub fn measure(spec: &Spec, load: &Load, runs: u32) -> Result<Point, RunError> {
    let path = spec.directory.join("alone");
    let open = |cause| RunError::Open { data: path.display().to_string(), cause };
    let db = Database::open_with(&path, super::database(spec.memory_bytes)).map_err(open)?;
    let workload = workload::of(spec.data);
    let homes = Homes::find(spec.shape, spec.data, |_| 0);
    say("loading");
    let loaded = workload.make(&db).and_then(|()| workload.load(&db, homes.of_partition(0)));
    loaded.map_err(RunError::during("loading the tables"))?;
    let procedure = db.procedure_id(spec.data.workload.name());
    let alone = Alone { db, workload, procedure };
    let site = Site { workload: &*alone.workload, homes: &homes, node: 0, nodes: 1, target: &alone };
    let mut point = Point::new(spec, *load, false, false);
    let mut told = Told::new(alone.workload.kinds().len());
    for run in 0..runs {
        interrupt::check()?;
        let load = Load { seed: load.seed.wrapping_add(u64::from(run)), ..*load };
        let failed = |why| RunError::Io {
            during: "running transactions",
            cause: std::io::Error::other::<String>(why),
        };
        let ran = clients::run(site, &load).map_err(failed)?;
        told.merge(&ran.told);
        point.runs.push(Ran::new(vec![ran]));
        let mut audit = Audit::default();
        let audited = alone.workload.audit(&alone.db, &mut audit);
        audited.map_err(RunError::during("adding up the tables"))?;
        point.problems.extend(alone.workload.problems(&audit, &told, 1));
        point.audit = audit;
    }
    point.told = told;
    alone.db.close().map_err(RunError::during("closing the database"))?;
    Ok(point)
}
