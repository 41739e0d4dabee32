//! What the cache makes of an SSD that is slow and does much at once: 2 ms and 64 channels, so 32,000 operations a second.
//!
//!     cargo run --release -p bathy-cache --example slow_ssd [SECONDS [TURNS]]
//!
//! The SSD is simulated in memory: an operation gets the channel that is free first, and its caller sleeps until it is done. One
//! line for each figure, with the ratio of each turn:
//!
//! * `iops`: hits a second by 128 callers, to 32,000.
//! * `p999`: the latency of hits that 99.9 % of them do not exceed, of 8 callers, while 16 others read what is not cached and
//!   write, so that lines enter, move and leave and records are written out; to that of the same callers alone.
//! * `cpu_ns`: processor time for a hit by one caller, in ns. The SSD takes no time then.
#![allow(clippy::print_stdout, reason = "the figures are its output")]

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use bathy_cache::{
    Aligned, BlockStore, CachedFile, CreateOptions, Engine, FileIdentity, GenerationStore, Options, Place,
    PlacesRead, Stamp, Until, create, open, parts_of,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const LATENCY: Duration = Duration::from_millis(2);
const CHANNELS: usize = 64;
const IOPS: f64 = 32_000.0;
const CACHE_BYTES: u64 = 256 << 20;
/// What fits, and is read again and again.
const HOT_BYTES: u64 = 64 << 20;
const COLD_BYTES: u64 = 2 << 30;
const UNIT: u64 = 4096;

/// Bytes in memory. Those of a file that nobody writes to are zeros.
struct Memory(RwLock<Vec<u8>>, u64);

impl Memory {
    fn new(kept_bytes: u64, size_bytes: u64) -> Arc<Self> {
        Arc::new(Self(RwLock::new(vec![0; kept_bytes as usize]), size_bytes))
    }
}

impl BlockStore for Memory {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let kept = self.0.read().map_err(|_| io::ErrorKind::Other)?;
        match kept.get(offset as usize..offset as usize + buffer.len()) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => buffer.fill(0),
        }
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut kept = self.0.write().map_err(|_| io::ErrorKind::Other)?;
        if let Some(bytes) = kept.get_mut(offset as usize..offset as usize + data.len()) {
            bytes.copy_from_slice(data);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp {
            size_bytes: self.1,
            ..Stamp::default()
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.1)
    }
}

/// The simulated SSD.
struct Slow {
    memory: Arc<Memory>,
    /// When each channel is free.
    channels: Mutex<Vec<Instant>>,
    takes_time: AtomicBool,
}

impl Slow {
    /// Waits for so many operations at once.
    fn wait(&self, operations: usize) -> io::Result<()> {
        if !self.takes_time.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = Instant::now();
        let mut channels = self.channels.lock().map_err(|_| io::ErrorKind::Other)?;
        let mut last = now;
        for _ in 0..operations {
            let first = channels.iter_mut().min().ok_or(io::ErrorKind::Other)?;
            *first = now.max(*first) + LATENCY;
            last = last.max(*first);
        }
        drop(channels);
        thread::sleep(last.saturating_duration_since(Instant::now()));
        Ok(())
    }
}

impl BlockStore for Slow {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.wait(1)?;
        self.memory.read(buffer, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.wait(1)?;
        self.memory.write(data, offset)
    }

    fn read_within(
        &self,
        mut bytes: Aligned,
        places: &[Place],
        _: &Until<'_>,
    ) -> Result<io::Result<PlacesRead>, Aligned> {
        let waited = self.wait(places.len());
        let read = |(place, part): (Place, _)| self.memory.read(&mut bytes[part], place.offset);
        let ends = parts_of(places).map(read).collect();
        Ok(waited.map(|()| (bytes, ends)))
    }

    fn write_within(&self, data: Aligned, offset: u64, _: &Until<'_>) -> Result<io::Result<()>, Aligned> {
        Ok(self.write(&data, offset))
    }

    fn flush(&self) -> io::Result<()> {
        self.wait(1)
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.memory.stamp()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.memory.size_bytes()
    }
}

#[derive(Default)]
struct Number(AtomicU64);

impl GenerationStore for Number {
    fn load(&self) -> Option<u64> {
        Some(self.0.load(Ordering::SeqCst)).filter(|&it| it != 0)
    }

    fn store(&self, generation: u64) -> io::Result<()> {
        self.0.store(generation, Ordering::SeqCst);
        Ok(())
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

struct Bed {
    ssd: Arc<Slow>,
    engine: Arc<Engine>,
    hot: CachedFile,
    cold: CachedFile,
    /// Units of the hot file on the SSD.
    units: Vec<u64>,
    begun: Instant,
}

impl Bed {
    fn new() -> Outcome<Self> {
        let memory = Memory::new(CACHE_BYTES + (16 << 20), CACHE_BYTES + (16 << 20));
        let ssd = Arc::new(Slow {
            memory,
            channels: Mutex::new(vec![Instant::now(); CHANNELS]),
            takes_time: AtomicBool::new(false),
        });
        let witness = Arc::new(Number::default());
        create(ssd.clone(), &*witness, &CreateOptions::new(*b"a simulated SSD."))?;
        let engine = open(ssd.clone(), witness, &Options::default())?.engine;
        let attach = |name: &[u8], store| -> Outcome<CachedFile> {
            let identity = FileIdentity::new(*b"a source of this", name).ok_or("a short name")?;
            Ok(engine.attach(identity, store)?)
        };
        let hot = attach(b"hot", Memory::new(HOT_BYTES, HOT_BYTES))?;
        let cold = attach(b"cold", Memory::new(0, COLD_BYTES))?;
        let mut out = vec![0; 64 << 10];
        // Hot ones are read in between, so that they move to the SSD when lines leave memory.
        for offset in (0..4 * HOT_BYTES).step_by(out.len()) {
            hot.read(&mut out, offset % HOT_BYTES, 0)?;
            cold.read(&mut out, offset, 0)?;
        }
        let mut units = Vec::new();
        engine.for_each_line(&mut |line| {
            if line.file == hot.number() && !line.is_in_memory {
                units.extend((0..16).map(|unit| line.offset_bytes + unit * UNIT));
            }
        });
        assert!(
            units.len() as u64 > HOT_BYTES / UNIT / 2,
            "the hot file is cached"
        );
        Ok(Self {
            ssd,
            engine,
            hot,
            cold,
            units,
            begun: Instant::now(),
        })
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// The latencies of hits by so many callers.
    fn hits(&self, callers: u64, time: Duration) -> Vec<Duration> {
        let end = Instant::now() + time;
        let one = |caller: u64| {
            let (mut random, mut out, mut latencies) = (Random(caller), vec![0; UNIT as usize], Vec::new());
            while Instant::now() < end {
                let offset = self.units[random.below(self.units.len() as u64) as usize];
                let begun = Instant::now();
                self.hot
                    .read(&mut out, offset, self.now_ns())
                    .expect("memory works");
                latencies.push(begun.elapsed());
            }
            latencies
        };
        thread::scope(|scope| {
            let callers: Vec<_> = (0..callers)
                .map(|caller| scope.spawn(move || one(caller)))
                .collect();
            callers
                .into_iter()
                .flat_map(|it| it.join().expect("no panic"))
                .collect()
        })
    }

    /// Reads what is not cached and writes, until it is over.
    fn churn(&self, caller: u64, is_over: &AtomicBool) {
        let (mut random, mut data) = (Random(caller + 1000), vec![0; 2 * UNIT as usize]);
        while !is_over.load(Ordering::Relaxed) {
            let offset = random.below(COLD_BYTES / UNIT - 2) * UNIT;
            if random.below(3) == 0 {
                self.cold
                    .write(&data, offset + 512, self.now_ns())
                    .expect("memory works");
            } else {
                self.cold
                    .read(&mut data, offset, self.now_ns())
                    .expect("memory works");
            }
        }
    }
}

fn percentile(mut latencies: Vec<Duration>) -> f64 {
    latencies.sort_unstable();
    let place = latencies.len() * 999 / 1000;
    latencies.get(place).map_or(f64::NAN, Duration::as_secs_f64)
}

/// Processor time of this process.
fn cpu_time() -> Outcome<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let ns = text.split_whitespace().next().ok_or("schedstat is empty")?;
    Ok(Duration::from_nanos(ns.parse()?))
}

fn line(name: &str, figures: &[f64], digits: usize) {
    let text: Vec<String> = figures.iter().map(|it| format!("{it:.digits$}")).collect();
    println!("{name} {}", text.join(" "));
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |it| it.parse())?;
    let turns: usize = arguments.next().map_or(Ok(5), |it| it.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let bed = Bed::new()?;
    let (mut iops, mut p999, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..turns {
        bed.ssd.takes_time.store(false, Ordering::Relaxed);
        // One caller is this thread, whose processor time the system knows best.
        let (end, before, mut count) = (Instant::now() + time, cpu_time()?, 0_u32);
        let (mut random, mut out) = (Random(7), vec![0; UNIT as usize]);
        while Instant::now() < end {
            for _ in 0..100 {
                let offset = bed.units[random.below(bed.units.len() as u64) as usize];
                bed.hot.read(&mut out, offset, 0)?;
                count += 1;
            }
        }
        let spent = cpu_time()?.saturating_sub(before);
        cpu.push((spent / count).as_nanos() as f64);
        bed.ssd.takes_time.store(true, Ordering::Relaxed);
        iops.push(bed.hits(128, time).len() as f64 / seconds / IOPS);
        let alone = percentile(bed.hits(8, time));
        let is_over = AtomicBool::new(false);
        let evictions = bed.engine.counts().evictions;
        let beside = thread::scope(|scope| {
            let (bed, is_over) = (&bed, &is_over);
            let churning: Vec<_> = (0..16)
                .map(|it| scope.spawn(move || bed.churn(it, is_over)))
                .collect();
            let latencies = bed.hits(8, time);
            is_over.store(true, Ordering::Relaxed);
            drop(churning);
            percentile(latencies)
        });
        assert!(bed.engine.counts().evictions > evictions, "lines left meanwhile");
        p999.push(beside / alone);
    }
    line("iops", &iops, 3);
    line("p999", &p999, 2);
    line("cpu_ns", &cpu, 0);
    Ok(())
}
