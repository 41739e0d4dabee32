//! Memory for requests: buffers that reads fill, and data that writes share.

use std::sync::Arc;

use bathy_random::Random;

use crate::plan::{Direction, Plan, Verify};
use crate::replay::Replay;
use crate::requests::Request;
use crate::world::Memory;

/// Data begin at multiples of this; each part of this size can be compressed alike.
const PART_BYTES: usize = 512;
/// The number of places at which data may begin.
const PLACES: usize = 8192;

/// Gives memory to requests, and takes it back.
pub struct Buffers {
    /// By kind of request, whose buffers have one size.
    free: Vec<Vec<Vec<u8>>>,
    free_bytes: u64,
    used_bytes: u64,
    /// Of both together.
    bytes_max: u64,
    data: Arc<[u8]>,
    random: Random,
    /// Who writes changes the data.
    is_own: bool,
}

impl Buffers {
    /// Memory for the requests of a plan, or of the trace that it replays: at most `bytes_max`, in which one of each kind
    /// must have room.
    pub fn new(plan: &Plan, replay: Option<&Replay>, bytes_max: u64) -> Self {
        let writes = plan
            .requests
            .iter()
            .filter(|kind| kind.direction == Direction::Write);
        let longest = writes.map(|kind| kind.block_bytes as usize).max();
        let replayed = replay.and_then(|replay| replay.longest(Direction::Write));
        let longest = longest.or(replayed.map(|bytes| bytes as usize));
        let mut random = Random::of_stream(plan.seed, u64::MAX);
        let data = longest.map_or_else(Vec::new, |longest| {
            compressible(PLACES * PART_BYTES + longest, plan.compression_ratio, &mut random)
        });
        Self {
            free: vec![Vec::new(); replay.map_or(plan.requests.len(), |replay| replay.kinds)],
            free_bytes: 0,
            used_bytes: 0,
            bytes_max,
            data: data.into(),
            random,
            is_own: plan.verify != Verify::Off,
        }
    }

    /// Whether there is memory for a request beside those that have some.
    pub fn has_room(&self, request: &Request) -> bool {
        let needs_own = request.direction == Direction::Read || self.is_own;
        !needs_own || self.used_bytes + u64::from(request.bytes) <= self.bytes_max
    }

    /// Memory for a request that there is room for.
    pub fn take(&mut self, request: &Request) -> Memory {
        let bytes = request.bytes as usize;
        match request.direction {
            Direction::Flush => Memory::None,
            Direction::Read => Memory::Own(self.buffer(request)),
            Direction::Write => {
                let start = self.random.below(PLACES as u64) as usize * PART_BYTES;
                if self.is_own {
                    let mut buffer = self.buffer(request);
                    buffer.copy_from_slice(&self.data[start..start + bytes]);
                    return Memory::Own(buffer);
                }
                Memory::Shared(Arc::clone(&self.data), start..start + bytes)
            }
        }
    }

    fn buffer(&mut self, request: &Request) -> Vec<u8> {
        let bytes = u64::from(request.bytes);
        self.used_bytes += bytes;
        if let Some(buffer) = self.free[request.kind as usize].pop() {
            self.free_bytes -= bytes;
            return buffer;
        }
        // Those of other kinds make room for it.
        while self.used_bytes + self.free_bytes > self.bytes_max {
            let Some(buffer) = self.free.iter_mut().find_map(Vec::pop) else {
                break;
            };
            self.free_bytes -= buffer.len() as u64;
        }
        vec![0; request.bytes as usize]
    }

    /// Take back the memory of a request.
    pub fn give_back(&mut self, request: &Request, memory: Memory) {
        if let Memory::Own(buffer) = memory {
            self.used_bytes -= buffer.len() as u64;
            self.free_bytes += buffer.len() as u64;
            self.free[request.kind as usize].push(buffer);
        }
    }
}

/// Bytes of which each part is random at its beginning and zero behind, so that they are compressed to `1 / ratio`.
fn compressible(bytes: usize, ratio: f64, random: &mut Random) -> Vec<u8> {
    let random_bytes = (PART_BYTES as f64 / ratio).round() as usize;
    let mut data = vec![0; bytes];
    for part in data.chunks_mut(PART_BYTES) {
        let end = random_bytes.min(part.len());
        for word in part[..end].chunks_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes()[..word.len()]);
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    #[test]
    fn free_buffers_give_way_to_those_of_other_kinds_and_all_together_keep_their_limit() {
        let text = r#"{"target": {"null": {"image_bytes": 1048576}}, "arrival": {"closed": {"queue_depth": 1}},
            "requests": [{"direction": "read", "block_bytes": 4096}, {"direction": "read", "block_bytes": 8192}],
            "duration_s": 1}"#;
        let plan = Plan::parse(text.as_bytes()).expect("a plan");
        let mut buffers = Buffers::new(&plan, None, 8192);
        let request = |kind: u32| Request {
            image: 0,
            kind,
            direction: Direction::Read,
            offset: 0,
            bytes: 4096 << kind,
        };
        let (short, long) = (request(0), request(1));
        let memory = [buffers.take(&short), buffers.take(&short)];
        assert!(!buffers.has_room(&short));
        for memory in memory {
            buffers.give_back(&short, memory);
        }
        assert!(buffers.has_room(&long));
        let _held = buffers.take(&long);
        assert_eq!((buffers.used_bytes, buffers.free_bytes), (8192, 0));
        assert!(!buffers.has_room(&short));
    }

    #[test]
    fn data_are_compressed_to_the_ratio_wherever_they_begin() {
        for ratio in [1.0, 2.0, 4.0] {
            let text = format!(
                r#"{{"target": {{"null": {{"image_bytes": 1048576}}}}, "arrival": {{"closed": {{"queue_depth": 1}}}},
                    "requests": [{{"direction": "write", "block_bytes": 65536}}], "duration_s": 1,
                    "compression_ratio": {ratio}}}"#
            );
            let plan = Plan::parse(text.as_bytes()).expect("a plan");
            let mut buffers = Buffers::new(&plan, None, 1 << 30);
            let request = Request {
                image: 0,
                kind: 0,
                direction: Direction::Write,
                offset: 0,
                bytes: 65_536,
            };
            let memories: Vec<Memory> = (0..4).map(|_| buffers.take(&request)).collect();
            assert_ne!(memories[0].data(), memories[1].data());
            for memory in memories {
                let mut compressed = ZlibEncoder::new(Vec::new(), Compression::fast());
                compressed.write_all(memory.data()).expect("into memory");
                let compressed = compressed.finish().expect("into memory");
                let reached = 65_536.0 / compressed.len() as f64;
                assert!((reached / ratio - 1.0).abs() < 0.1, "{reached} and not {ratio}");
            }
        }
    }
}
