//! What a worker and its slot processes say to each other: messages with their length before them,
//! over a pair of sockets.

use std::io::{self, Read, Write};

use prost::Message;

/// Longest message: an action's arguments and environment.
const LONGEST: u32 = 64 << 20;

/// From the worker: run an action, or end the one that runs.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Order {
    /// The program and its arguments; empty to end what runs.
    #[prost(string, repeated, tag = "1")]
    pub arguments: Vec<String>,
    /// Its whole environment.
    #[prost(message, repeated, tag = "2")]
    pub environment: Vec<Variable>,
    /// Where it starts, below the input root.
    #[prost(string, tag = "3")]
    pub directory: String,
    /// Longest time that it may run.
    #[prost(uint64, tag = "4")]
    pub time_limit_ns: u64,
    /// Most bytes on each of its two outputs.
    #[prost(uint64, tag = "5")]
    pub log_bytes: u64,
    /// What runs is to end since it takes too much of the disk.
    #[prost(bool, tag = "6")]
    pub out_of_disk: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Variable {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// From the slot: how an action ended; at its start, that the slot is ready.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Ended {
    /// Exit status as shells count: 128 + N for signal N.
    #[prost(int32, tag = "1")]
    pub exit_code: i32,
    /// Why it could not be started, if so.
    #[prost(string, tag = "2")]
    pub refused: String,
    /// Ended because of its time limit.
    #[prost(bool, tag = "3")]
    pub out_of_time: bool,
    /// Ended because it wrote too much.
    #[prost(bool, tag = "4")]
    pub out_of_log: bool,
    /// Ended by the worker's order.
    #[prost(bool, tag = "5")]
    pub stopped: bool,
    /// The bound of memory, disk or processes that it was ended for, in words.
    #[prost(string, tag = "13")]
    pub beyond: String,
    /// When it began and ended, on the machine's monotonic clock.
    #[prost(uint64, tag = "6")]
    pub began_ns: u64,
    /// See `began_ns`.
    #[prost(uint64, tag = "7")]
    pub ended_ns: u64,
    #[prost(uint64, tag = "8")]
    pub user_us: u64,
    #[prost(uint64, tag = "9")]
    pub system_us: u64,
    /// Largest memory of one of its processes.
    #[prost(uint64, tag = "10")]
    pub memory_bytes: u64,
    #[prost(uint64, tag = "11")]
    pub stdout_bytes: u64,
    /// See `stdout_bytes`.
    #[prost(uint64, tag = "12")]
    pub stderr_bytes: u64,
    /// Page faults that needed the disk.
    #[prost(uint64, tag = "14")]
    pub major_faults: u64,
    /// What the slot could not set up, for the log.
    #[prost(string, tag = "15")]
    pub notes: String,
}

/// A message with its length before it.
pub(super) fn frame(message: &impl Message) -> Vec<u8> {
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(4 + message.encoded_len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&message.encode_to_vec());
    bytes
}

pub(super) fn write(mut socket: impl Write, message: &impl Message) -> io::Result<()> {
    socket.write_all(&frame(message))
}

/// Reads a message; `None` when the other side has gone.
pub(super) fn read<M: Message + Default>(mut socket: impl Read) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    match socket.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut body = vec![0; checked_length(length)?];
    socket.read_exact(&mut body)?;
    decode(&body).map(Some)
}

/// The length that four bytes write.
pub(super) fn checked_length(bytes: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(bytes);
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    Ok(usize::try_from(length).unwrap_or(usize::MAX))
}

pub(super) fn decode<M: Message + Default>(body: &[u8]) -> io::Result<M> {
    M::decode(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
