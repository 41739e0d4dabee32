//! The program: a plan in, lines of results out.

use std::fs::File;
use std::io::{Read, Write, stdin, stdout};
use std::mem::ManuallyDrop;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bathy_ceph::Image;
use nix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::account::Total;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::null::Null;
use crate::plan::{Arrival, Plan, RbdPlan, TargetPlan};
use crate::rbd::Rbd;
use crate::replay::Replay;
use crate::report::{Line, Report};
use crate::world::World;

/// A plan that is longer is none.
const PLAN_BYTES_MAX: u64 = 64 << 20;

/// What `--help` prints.
pub const HELP: &str = "\
Send requests to RBD images at given times, and measure latency from the time at which each should have started.

usage: bathy-load [PLAN.json]     without a file, or with -, the plan is read from standard input

  --help, --version

A plan is a JSON object:

  {\"target\": {\"rbd\": {\"pool\": \"rbd\", \"images\": [\"a\", \"b\"]}},
   \"arrival\": {\"open\": {\"process\": \"poisson\", \"rate_iops\": 500}},
   \"requests\": [{\"direction\": \"read\", \"block_bytes\": 4096, \"weight\": 70},
                {\"direction\": \"write\", \"block_bytes\": 4096, \"weight\": 30}],
   \"ramp_s\": 5, \"duration_s\": 60}

  target       {\"rbd\": {pool, images, namespace, conf, client (client.admin), keyring, connect_timeout_s (30), options}},
               where options are options of the Ceph client (rbd_cache is false; what `rbd config` sets for the pool or the
               image holds all the same), or {\"null\": {image_bytes, images (1)}}:
               requests complete at once
  arrival      {\"open\": {process (constant, poisson), rate_iops or rate_iops_per_image, bursts {on_s, off_s}}},
               {\"closed\": {queue_depth}} for each image,
               or {\"replay\": {trace, format, speed (1), volumes, beyond_end (refuse, wrap), object_bytes (4 MiB)}}: a
               recorded block trace with times, in a format that bathy size reads. Its volumes have images in the order in
               which they appear, or volumes has their names, one for each image. Discards, and what has no image, are
               counted and left out. A replay has neither requests nor pattern, offset_bytes, working_set_bytes and verify
  requests     a list: direction (read, write, flush), block_bytes, weight (1)
  pattern      \"random\" (default), \"sequential\", {\"zipf\": {theta}}, {\"hot-set\": {space, requests}} (shares)
  offset_bytes, working_set_bytes
               which part of each image (all of it)
  ramp_s (0), duration_s, request_count
               how long; request_count ends it earlier
  deadline_s   a request that has not completed so long after its intended start has failed (30)
  in_flight_max
               requests in flight at most; others are held back, and counted (16384, the queue depth at least)
  memory_bytes_max
               memory for data in flight and for what verify remembers, 8 bytes for each block of 4 KiB in a load that reads
               and writes (1 GiB); an open loop holds requests back that have no room, any other that needs more is refused
  verify       \"on\": blocks of 4 KiB are stamped when they are written and checked when they are read; \"filled\": and all of
               the working set has been written so before (off)
  compression_ratio (1), seed (1)

Results are JSON objects, one a line: start, second (one for each, by the time of completion), total (requests whose
intended start lies in the duration; measured_s is shorter than that where request_count ended it). Latencies are
histograms: pairs of a bucket's upper end, in nanoseconds, and count.
Percentiles count requests that failed as slower than any: null where one falls among these.

Written images lose what they had. Exit codes: 0 done, 1 blocks read that are not
what was written (\"verified\" names them by the number of the image, the offset and the RADOS object), 2 error. Failed requests are
results, and no error.
";

const THREAD: ClockId = ClockId::CLOCK_THREAD_CPUTIME_ID;
const PROCESS: ClockId = ClockId::CLOCK_PROCESS_CPUTIME_ID;
const SAY_HELP: &str = "see --help";

/// Carry out a command line (without the program's name) and return the exit code: 0 done, 1 mismatches, 2 error. Errors are said on
/// stderr. With images of a cluster the process ends here: threads of librados may never end.
pub fn main(arguments: impl IntoIterator<Item = String>) -> u8 {
    let mut arguments = arguments.into_iter();
    let (argument, more) = (arguments.next(), arguments.next());
    let ended = match (argument.as_deref(), more) {
        (_, Some(more)) => Err(Failure::new(
            format!("'{more}' is one argument too many"),
            SAY_HELP,
        )),
        (Some("--help" | "-h"), None) => say(HELP).map(|()| 0),
        (Some("--version"), None) => say(concat!("bathy-load ", env!("CARGO_PKG_VERSION"), "\n")).map(|()| 0),
        (Some(option), None) if option.starts_with("--") => {
            Err(Failure::new(format!("'{option}' is not an option"), SAY_HELP))
        }
        (file, None) => read_plan(file.filter(|&file| file != "-")).and_then(|plan| load(&plan)),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("bathy-load: {failure}");
            2
        }
    }
}

fn say(text: &str) -> Result<(), Failure> {
    stdout()
        .write_all(text.as_bytes())
        .map_err(|error| not_written(&error))
}

fn not_written(error: &std::io::Error) -> Failure {
    Failure::new(
        format!("results cannot be written: {error}"),
        "give standard output a reader, or room",
    )
}

fn read_plan(file: Option<&str>) -> Result<Plan, Failure> {
    let mut text = Vec::new();
    let read = match file {
        Some(path) => File::open(path).and_then(|file| file.take(PLAN_BYTES_MAX).read_to_end(&mut text)),
        None => stdin().take(PLAN_BYTES_MAX).read_to_end(&mut text),
    };
    read.map_err(|error| {
        let shown = file.unwrap_or("standard input");
        Failure::new(
            format!("the plan cannot be read from {shown}: {error}"),
            "name the file of the plan",
        )
    })?;
    Plan::parse(&text)
}

fn load(plan: &Plan) -> Result<u8, Failure> {
    // A thread that sleeps wakes up to 50 µs late otherwise. What it could not be set to is seen in the lateness.
    let _kept = nix::sys::prctl::set_timerslack(1);
    let replay = Replay::open(plan)?;
    match &plan.target {
        TargetPlan::Null(null) => {
            let sizes = vec![null.image_bytes; null.images];
            measure(plan, replay, "null", &sizes, &mut Null::new()).map(|total| code(&total))
        }
        TargetPlan::Rbd(about) => {
            let ended = load_rbd(plan, replay, about);
            if let Err(failure) = &ended {
                eprintln!("bathy-load: {failure}");
            }
            leave(ended.map_or(2, i32::from))
        }
    }
}

fn load_rbd(plan: &Plan, replay: Option<Replay>, about: &RbdPlan) -> Result<u8, Failure> {
    let library = format!("librbd {}", Image::library_version()?);
    let writes = replay.as_ref().map_or(plan.writes(), Replay::writes);
    let rbd = Rbd::open(about, writes, plan.in_flight_max(about.images.len()))?;
    // Closing waits for what the cluster has not completed.
    let mut rbd = ManuallyDrop::new(rbd);
    let sizes = rbd.sizes();
    let measured = measure(plan, replay, &library, &sizes, &mut *rbd);
    // A plan that does not fit the images is refused before anything is sent.
    let has_some_left = measured.as_ref().is_ok_and(|total| total.never_completed > 0);
    if has_some_left || !ManuallyDrop::into_inner(rbd).close() {
        eprintln!("bathy-load: images are left open, and others may have to wait 30 s until they are free");
    }
    measured.map(|total| code(&total))
}

fn code(total: &Total) -> u8 {
    let is_as_written = total.verified.as_ref().is_none_or(|it| it.mismatches == 0);
    u8::from(!is_as_written)
}

/// End the process without the exit handlers of libraries, whose threads may still run: in them they crash, or hang.
fn leave(code: i32) -> ! {
    // What has been written is out: standard output is flushed line by line, standard error has no buffer.
    // SAFETY: it ends the process, and touches nothing.
    unsafe { libc::_exit(code) }
}

fn measure(
    plan: &Plan,
    replay: Option<Replay>,
    target: &str,
    sizes: &[u64],
    world: &mut impl World,
) -> Result<Total, Failure> {
    let report = Report::to(stdout());
    let mut engine = Engine::new(plan, replay, sizes, world)?;
    let replayed = engine.replayed();
    engine.begin();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let rate_iops = match &plan.arrival {
        Arrival::Open(schedule) => Some(Plan::rate_iops(schedule, sizes.len())),
        Arrival::Closed { .. } | Arrival::Replay(_) => None,
    };
    let start = json!({
        "type": "start",
        "version": env!("CARGO_PKG_VERSION"),
        "target": target,
        "image_bytes": sizes,
        // Of the load: what is measured begins a ramp later.
        "started_ns": started.as_nanos() as u64,
        "ramp_s": plan.ramp_s,
        "duration_s": plan.duration_s,
        "rate_iops": rate_iops,
        "replay": replayed,
        "in_flight_max": plan.in_flight_max(sizes.len()),
        "deadline_s": plan.deadline_s,
        "seed": plan.seed,
    });
    let write = |line| {
        if !report.write(line) {
            eprintln!("bathy-load: nobody reads the results");
            leave(2);
        }
    };
    write(Line::Start(start));
    let (process_s, thread_s) = (processor_s(PROCESS), processor_s(THREAD));
    let total = engine.run(&mut |second| write(Line::Second(Box::new(second))));
    let processor = json!({
        "processor_s": {
            "submitter": processor_s(THREAD) - thread_s,
            "process": processor_s(PROCESS) - process_s,
        },
    });
    write(Line::Total(Box::new(total.clone()), processor));
    report.finish().map_err(|error| not_written(&error))?;
    Ok(total)
}

fn processor_s(clock: ClockId) -> f64 {
    clock_gettime(clock).map_or(f64::NAN, |time| Duration::from(time).as_secs_f64())
}
