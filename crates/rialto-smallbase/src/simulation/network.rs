//! [`Network`]: when messages arrive.

use super::cores::NodeId;
use super::setup::Wire;

/// The links of all nodes. A node's messages leave one after the other.
pub struct Network {
    delay_ns: u64,
    /// How long a message occupies its sender's link.
    occupies_ns: f64,
    /// When each node's link is free again.
    free_at_ns: Vec<f64>,
}

impl Network {
    pub fn new(wire: Wire, message_bytes: f64, nodes: u32) -> Network {
        let occupies_ns = wire.mbit.map_or(0.0, |mbit| message_bytes * 8.0 / mbit * 1e3);
        Network { delay_ns: (wire.delay_us * 1e3) as u64, occupies_ns, free_at_ns: vec![0.0; nodes as usize] }
    }

    /// A node sends a message now. Gives the time of its arrival.
    pub fn send(&mut self, from: NodeId, now_ns: u64) -> u64 {
        let free_at = &mut self.free_at_ns[from as usize];
        *free_at = free_at.max(now_ns as f64) + self.occupies_ns;
        free_at.ceil() as u64 + self.delay_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_node_leave_one_after_the_other() {
        let wire = Wire { delay_us: 5.0, mbit: Some(8.0) };
        let mut network = Network::new(wire, 100.0, 2);
        // 100 bytes at a byte a microsecond.
        assert_eq!([network.send(0, 0), network.send(0, 0), network.send(1, 0)], [105_000, 205_000, 105_000]);
        assert_eq!(network.send(0, 1_000_000), 1_105_000);
        assert_eq!(Network::new(Wire::default(), 100.0, 1).send(0, 7), 7);
    }
}
