//! Which node of a cluster has which slot, as it was told and as redirects correct it.

use std::net::{IpAddr, SocketAddr};

/// Slots of every cluster.
const SLOTS: u16 = 16_384;

/// Nodes that are kept apart; a cluster has a thousand at most.
const MOST_NODES: usize = 1_024;

/// Where the slots are. Empty for a server that is no part of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    nodes: Vec<SocketAddr>,
    /// By slot the number of its node, from 1; 0 where it is not known.
    of: Vec<u16>,
}

impl Slots {
    /// Whether any slot is known.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Reads the answer of `target` to `CLUSTER NODES`.
    pub(super) fn read(&mut self, text: &str, target: SocketAddr) {
        for line in text.lines() {
            let mut words = line.split(' ');
            let (_id, address) = (words.next(), words.next());
            let Some(node) = address.and_then(|address| node(address, target)) else { continue };
            // Flags, master, ping, pong, epoch and state stand before the slots.
            for range in words.skip(6) {
                let (from, to) = range.split_once('-').unwrap_or((range, range));
                if let (Ok(from), Ok(to)) = (from.parse::<u16>(), to.parse::<u16>()) {
                    for slot in from..=to.min(SLOTS - 1) {
                        self.learn(slot, node);
                    }
                }
            }
        }
    }

    /// A slot is on this node; false when there is no such slot, or there are too many nodes.
    pub(super) fn learn(&mut self, slot: u16, node: SocketAddr) -> bool {
        let known = self.nodes.iter().position(|known| *known == node);
        if slot >= SLOTS || known.is_none() && self.nodes.len() == MOST_NODES {
            return false;
        }
        let number = known.unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        self.of.resize(usize::from(SLOTS), 0);
        self.of[usize::from(slot)] = u16::try_from(number + 1).unwrap_or(0);
        true
    }

    /// A node does not answer: its slots are asked for elsewhere.
    pub(super) fn forget(&mut self, node: SocketAddr) {
        if let Some(at) = self.nodes.iter().position(|known| *known == node) {
            let number = u16::try_from(at + 1).unwrap_or(0);
            self.of.iter_mut().filter(|of| **of == number).for_each(|of| *of = 0);
        }
    }

    pub(super) fn node_of(&self, key: &[u8]) -> Option<SocketAddr> {
        if self.of.is_empty() {
            return None;
        }
        let number = self.of[usize::from(slot_of(key))].checked_sub(1)?;
        self.nodes.get(usize::from(number)).copied()
    }
}

/// `IP:PORT@BUS,HOST`; the IP is empty where the node does not know its own.
fn node(text: &str, target: SocketAddr) -> Option<SocketAddr> {
    let (address, _) = text.split_once('@').unwrap_or((text, ""));
    let (host, port) = address.rsplit_once(':')?;
    let ip: IpAddr =
        if host.is_empty() { target.ip() } else { host.trim_matches(['[', ']']).parse().ok()? };
    port.parse().ok().map(|port| SocketAddr::new(ip, port))
}

/// The slot of a key: of what stands in the first braces, where that is not empty.
fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16 with the polynomial 0x1021 and 0 at the start (XMODEM), as the cluster specification has it.
fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = table();
    bytes
        .iter()
        .fold(0, |crc: u16, byte| crc << 8 ^ TABLE[usize::from(crc.to_be_bytes()[0] ^ byte)])
}

const fn table() -> [u16; 256] {
    let mut table = [0_u16; 256];
    let (mut index, mut start) = (0, 0_u16);
    while index < 256 {
        let (mut crc, mut bit) = (start, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
        start = start.wrapping_add(0x100);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0x31C3 for `123456789` is the check value of the algorithm; the slots are what `CLUSTER KEYSLOT` answers.
    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(
            (slot_of(b"foo"), slot_of(b"{user1000}.following")),
            (12_182, slot_of(b"user1000"))
        );
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of(b"foo{{bar}}"), crc16(b"{bar") % SLOTS);
    }

    #[test]
    fn slots_are_read_learned_and_forgotten() {
        let target = "127.0.0.1:7000".parse().unwrap();
        let text = "07c3 :7000@17000 myself,master - 0 0 1 connected 0-5460 [93->-e7d1]\n\
                    e7d1 127.0.0.2:7001@17001,host.example master - 0 1 2 connected 5461-16382 16383\n\
                    67ed 127.0.0.1:7002@17002 slave e7d1 0 1 2 connected\nnoise\n";
        let mut slots = Slots::default();
        assert!(slots.is_empty() && slots.node_of(b"foo").is_none());
        slots.read(text, target);
        let second = "127.0.0.2:7001".parse().unwrap();
        assert_eq!((slots.node_of(b"foo"), slots.nodes()), (Some(second), 2));
        assert!(slots.learn(12_182, target));
        assert_eq!(slots.node_of(b"foo"), Some(target));
        slots.forget(target);
        assert_eq!(slots.node_of(b"foo"), None);
        assert!(!slots.learn(SLOTS, target));
    }
}
