//! Recorded traces as loads.

use std::fmt::Write;
use std::path::Path;

use bathy_load::account::Total;
use bathy_load::engine::Engine;
use bathy_load::plan::{BeyondEnd, Direction, Plan};
use bathy_load::replay::{Counts, Replay};
use bathy_trace::{OnBadRecord, OpenOptions, open_bytes};
use proptest::prelude::*;

use crate::world::{SECOND_NS, Simulated, parsed};

const IMAGE_BYTES: u64 = 1 << 20;

fn plan(images: usize, replay: &str, more: &str) -> Plan {
    parsed(&format!(
        r#"{{"target": {{"null": {{"image_bytes": {IMAGE_BYTES}, "images": {images}}}}},
            "arrival": {{"replay": {{"trace": "trace.csv" {replay}}}}}, "duration_s": 60 {more}}}"#
    ))
}

fn read(plan: &Plan, trace: &str) -> Result<Replay, String> {
    let options = OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        ..OpenOptions::default()
    };
    let mut reader =
        open_bytes(Path::new("trace.csv"), trace.as_bytes().to_vec(), None, &options).expect("a trace");
    let about = plan.replay().expect("it is a replay");
    Replay::read(plan, about, reader.as_mut()).map_err(|failure| failure.message)
}

/// What is sent, as time, image, direction, offset and length; and what was counted.
type Sent = Vec<(u64, u32, Direction, u64, u32)>;

fn replayed(plan: &Plan, trace: &str) -> Result<(Sent, Counts, Total), String> {
    let mut world = Simulated::new(|_, now_ns| Some((now_ns + 1_000_000, Ok(()))));
    let replay = read(plan, trace)?;
    let sizes = vec![IMAGE_BYTES; plan.images()];
    let engine = Engine::new(plan, Some(replay), &sizes, &mut world).map_err(|failure| failure.message)?;
    let counts = engine.replayed().expect("it replays");
    let total = engine.run(&mut |_| {});
    let sent = world
        .submitted
        .iter()
        .map(|(at_ns, it)| (*at_ns, it.image, it.direction, it.offset, it.bytes));
    Ok((sent.collect(), counts, total))
}

const TRACE: &str = "time_ms,volume,op,offset_bytes,length_bytes
5000,a,read,4096,4096
5010,b,write,0,8192
5010,a,trim,0,4096
7000,c,read,0,512
6000,a,write,1040384,8192
no,a,read,0,4096
9000,b,other,0,4096
65000,b,read,8192,512
65001,b,read,8192,512
";

#[test]
fn requests_start_when_they_did_in_the_trace_by_its_speed() {
    const MS: u64 = 1_000_000;
    let (sent, counts, total) = replayed(&plan(2, "", ""), TRACE).expect("a load");
    let (read, write) = (Direction::Read, Direction::Write);
    assert_eq!(
        sent,
        [
            (0, 0, read, 4096, 4096),
            (10 * MS, 1, write, 0, 8192),
            (1000 * MS, 0, write, 1_040_384, 8192),
        ]
    );
    let counted = Counts {
        requests: 3,
        trims: 1,
        others: 1,
        without_image: 1,
        bad_records: 1,
        after_end: 2,
        wrapped: 0,
    };
    assert_eq!(counts, counted);
    assert_eq!((total.counts.scheduled, total.lateness.max()), (3, 0));
    // Nothing more was to come.
    assert_eq!(total.measured_ns, 1001 * MS);

    let (faster, counts, _) = replayed(&plan(3, r#", "speed": 4"#, ""), TRACE).expect("a load");
    assert_eq!((counts.without_image, counts.after_end), (0, 0));
    let starts: Vec<u64> = faster.iter().map(|it| it.0).collect();
    assert_eq!(
        starts,
        [
            0,
            2_500_000,
            250 * MS,
            500 * MS,
            15 * SECOND_NS,
            15 * SECOND_NS + 250_000
        ]
    );
    assert_eq!(faster[3].1, 2);
}

#[test]
fn volumes_have_the_images_that_are_named_for_them() {
    let plan = plan(2, r#", "volumes": ["c", "a"]"#, "");
    let (sent, counts, _) = replayed(&plan, TRACE).expect("a load");
    let images: Vec<u32> = sent.iter().map(|it| it.1).collect();
    assert_eq!(images, [1, 1, 0]);
    // Of b one is written within the minute, and two are read after it.
    assert_eq!((counts.without_image, counts.after_end), (3, 0));
}

#[test]
fn what_reaches_beyond_an_image_is_refused_or_wrapped() {
    let trace = "time_ms,op,offset_bytes,length_bytes
1,read,1048576,4096
2,write,5242880,8192
3,read,1044480,8192
";
    let refused = replayed(&plan(1, "", ""), trace).err();
    let expected = "4096 bytes at 1048576, ends beyond image 0, which has 1048576 bytes";
    assert!(
        refused.as_ref().is_some_and(|it| it.contains(expected)),
        "{refused:?}"
    );
    let wrap = plan(1, r#", "beyond_end": "wrap""#, "");
    let (sent, counts, _) = replayed(&wrap, trace).expect("a load");
    let offsets: Vec<u64> = sent.iter().map(|it| it.3).collect();
    assert_eq!((offsets, counts.wrapped), (vec![0, 0, 1_040_384], 3));
    let too_long = "time_ms,op,offset_bytes,length_bytes\n1,read,0,2097152\n2,read,0,512\n";
    assert!(replayed(&wrap, too_long).is_err());
}

#[test]
fn a_trace_that_cannot_be_replayed_says_why() {
    let no_times = "op,offset_bytes,length_bytes\nread,0,512\nread,512,512\n";
    assert_eq!(
        read(&plan(1, "", ""), no_times).err().as_deref(),
        Some("the trace has no times")
    );
    let lines = (0..100).map(|time_ms| format!("{time_ms},read,0,512\n"));
    let many: String = ["time_ms,op,offset_bytes,length_bytes\n".to_owned()]
        .into_iter()
        .chain(lines)
        .collect();
    let small = plan(1, "", r#", "memory_bytes_max": 8192"#);
    let refused = read(&small, &many).err();
    assert!(
        refused
            .as_ref()
            .is_some_and(|it| it.contains("more than 42 requests")),
        "{refused:?}"
    );
    let long = "time_ms,op,offset_bytes,length_bytes\n1,read,0,8192\n2,read,0,512\n";
    let refused = read(&small, long).err();
    assert!(
        refused
            .as_ref()
            .is_some_and(|it| it.contains("a read of 8192 bytes")),
        "{refused:?}"
    );
}

#[test]
fn a_replay_has_no_requests_of_its_own() {
    let text = r#"{"target": {"null": {"image_bytes": 4096}}, "arrival": {"replay": {"trace": "t"}}, "duration_s": 1,
        "pattern": "sequential"}"#;
    let refused = Plan::parse(text.as_bytes()).err().map(|failure| failure.message);
    assert!(refused.is_some_and(|it| it.starts_with("a replay has no requests")));
    let text = r#"{"target": {"null": {"image_bytes": 4096}}, "arrival": {"closed": {"queue_depth": 1}}, "duration_s": 1}"#;
    let refused = Plan::parse(text.as_bytes()).err().map(|failure| failure.message);
    assert_eq!(refused.as_deref(), Some("requests is empty"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever a trace has, its requests start in order, in their images, and each record is counted once.
    #[test]
    fn no_trace_leaves_its_images(
        events in prop::collection::vec((any::<u64>(), 0_u32..64, any::<u64>(), 0_u32..64, 1_u32..4096, 0_usize..4, 0..3), 1..40),
        speed in 0.001_f64..1000.0,
    ) {
        let mut trace = "time_ns,volume,op,offset_bytes,length_bytes\n".to_owned();
        for (time, by, offset, by_offset, blocks, op, volume) in &events {
            let op = ["read", "write", "trim", "other"][*op];
            let (time, offset) = (time >> by, offset >> by_offset);
            writeln!(trace, "{time},v{volume},{op},{offset},{}", blocks * 512).expect("into memory");
        }
        let plan = plan(2, &format!(r#", "beyond_end": "wrap", "speed": {speed}"#), "");
        let Ok(mut replay) = read(&plan, &trace) else {
            return Ok(());
        };
        let sizes = [IMAGE_BYTES; 2];
        let fits = replay.fit(&sizes, BeyondEnd::Wrap).is_ok();
        let counts = replay.counts();
        prop_assert_eq!(
            counts.requests + counts.trims + counts.others + counts.without_image + counts.bad_records + counts.after_end,
            events.len() as u64
        );
        if fits {
            let (sent, ..) = replayed(&plan, &trace).expect("it fits");
            prop_assert_eq!(sent.len() as u64, counts.requests);
            for (_, image, _, offset, bytes) in &sent {
                prop_assert!(*image < 2 && offset + u64::from(*bytes) <= IMAGE_BYTES);
            }
            prop_assert!(sent.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        }
    }
}
