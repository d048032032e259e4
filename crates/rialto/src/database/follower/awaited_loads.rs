//! [`AwaitedLoads`]: the load files that received packets name and that are not there yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::commit::redo::{self, Change};
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::log::{AppendedPackets, Packet, PacketKind};
use crate::store::load_file_name;
use crate::txn::core::Core;

/// By the number of a load file: the place that names it, and its digest.
type Awaited = BTreeMap<u64, (Lsn, Option<u64>)>;

/// Reads each packet as it is received, before it is redone.
pub(super) struct AwaitedLoads {
    core: Arc<Core>,
    packets: AppendedPackets,
    awaited: Awaited,
}

impl AwaitedLoads {
    pub fn new(core: &Arc<Core>) -> Result<AwaitedLoads> {
        let packets = AppendedPackets::after(&core.commits.log)?;
        Ok(AwaitedLoads { core: core.clone(), packets, awaited: Awaited::new() })
    }

    /// Looks through the packets that came.
    pub fn look(&mut self) -> Result<()> {
        let AwaitedLoads { core, packets, awaited } = self;
        while let Some(packet) = packets.next(Duration::ZERO)? {
            await_loads(core, &packet, awaited)?;
            packets.pass();
        }
        Ok(())
    }

    /// Adds the load files that this packet names and that are not there; returns whether there are any.
    pub fn await_again(&mut self, packet: &Packet<'_>) -> Result<bool> {
        await_loads(&self.core, packet, &mut self.awaited)
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.awaited.keys().copied().collect()
    }

    /// The one that is named first, and the place that names it.
    pub fn first(&self) -> Option<(u64, Lsn)> {
        self.awaited.iter().map(|(number, (place, _))| (*number, *place)).min_by_key(|(_, place)| *place)
    }

    /// A load file came.
    pub fn came(&mut self, number: u64) -> Result<()> {
        let Some(&(place, digest)) = self.awaited.get(&number) else { return Ok(()) };
        if !self.core.storage.has_load_file(number, digest)? {
            let what = format!("is damaged, or not the one that place {place} of the log names");
            return Err(Error::Corrupt { file: load_file_name(number), offset: 0, what });
        }
        self.awaited.remove(&number);
        Ok(())
    }
}

fn await_loads(core: &Core, packet: &Packet<'_>, awaited: &mut Awaited) -> Result<bool> {
    let mut is_any = false;
    if packet.kind == PacketKind::Commit {
        // What makes no sense is found when the packet is redone.
        for record in redo::read(packet.bytes).map_while(std::result::Result::ok) {
            if let Change::Load { file, digest } = record.change
                && !core.storage.has_load_file(file, digest)?
            {
                awaited.insert(file, (packet.lsn, digest));
                is_any = true;
            }
        }
    }
    Ok(is_any)
}
