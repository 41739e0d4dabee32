//! The engine in simulated time: what is counted is what arithmetic says, whatever the target does.

mod limits;
mod replay;
mod shares;
mod world;

use std::collections::HashMap;

use bathy_load::account::{ByDirection, Fault, Total};
use bathy_load::plan::{Direction, Plan};
use bathy_load::verify::{self, Mismatch};
use proptest::prelude::*;

use world::{IMAGE_BYTES, SECOND_NS, Simulated, disorder, load, parsed, plan, stalls};

fn at(total: &Total, quantile: f64) -> (f64, f64) {
    let figures = total.directions[Direction::Read as usize]
        .as_ref()
        .expect("it reads");
    (
        figures.from_intended.value_at_quantile(quantile) as f64 / 1e9,
        figures.from_submission.value_at_quantile(quantile) as f64 / 1e9,
    )
}

fn near(value: f64, expected: f64) {
    assert!(
        (value / expected - 1.0).abs() < 0.05,
        "{value} and not {expected}"
    );
}

/// A tenth of the requests wait for up to a second, all times alike: the highest tenth of these are the slowest 1 %.
#[test]
fn an_open_loop_sees_a_stall_as_users_do_and_a_closed_one_does_not() {
    for process in ["constant", "poisson"] {
        let open = plan(
            &format!(r#"{{"open": {{"process": "{process}", "rate_iops": 1000}}}}"#),
            r#""duration_s": 300"#,
        );
        let (total, _) = load(&open, 1, &mut Simulated::new(stalls));
        near(at(&total, 0.99).0, 0.9);
        near(at(&total, 0.999).0, 0.99);
        near(at(&total, 0.95).0, 0.5);
    }
    let closed = plan(r#"{"closed": {"queue_depth": 1}}"#, r#""duration_s": 300"#);
    let (total, _) = load(&closed, 1, &mut Simulated::new(stalls));
    near(at(&total, 0.999).0, 0.001);
}

#[test]
fn what_is_held_back_has_its_wait_in_the_latency_and_is_counted() {
    let open = plan(
        r#"{"open": {"process": "constant", "rate_iops": 1000}}"#,
        r#""duration_s": 100, "in_flight_max": 50"#,
    );
    let mut world = Simulated::new(stalls);
    let (total, _) = load(&open, 1, &mut world);
    near(at(&total, 0.99).0, 0.9);
    near(at(&total, 0.999).0, 0.99);
    // Those 50 are in flight all the time that the target stalls, but are only a twentieth of those that wait.
    assert!(at(&total, 0.99).1 < 0.01);
    assert_eq!((world.in_flight_max, total.in_flight_max), (50, 50));
    assert_eq!(total.counts.sent, 100_000);
    // 950 in each stall, and 20 of which 50 go out in each millisecond after it.
    assert!((9_650..9_750).contains(&total.counts.held), "{:?}", total.counts);
}

#[test]
fn a_dead_target_ends_each_request_by_its_deadline() {
    let open = plan(
        r#"{"open": {"process": "constant", "rate_iops": 100}}"#,
        r#""duration_s": 10, "deadline_s": 3, "in_flight_max": 40"#,
    );
    let mut world = Simulated::new(|_, _| None);
    let (total, _) = load(&open, 1, &mut world);
    let failed = &total.directions[Direction::Read as usize]
        .as_ref()
        .expect("it reads")
        .failed;
    assert_eq!(
        failed
            .iter()
            .map(|(&fault, &count)| (fault, count))
            .collect::<Vec<_>>(),
        [(Fault::Deadline, 40), (Fault::NotSent, 960)]
    );
    assert_eq!(
        (total.counts.scheduled, total.counts.sent, total.never_completed),
        (1000, 40, 40)
    );
    assert!(world.now_ns <= 13 * SECOND_NS, "{}", world.now_ns);
    let closed = plan(
        r#"{"closed": {"queue_depth": 8}}"#,
        r#""duration_s": 10, "deadline_s": 3, "in_flight_max": 16"#,
    );
    let mut world = Simulated::new(|_, _| None);
    let (total, _) = load(&closed, 1, &mut world);
    // It has as many as it may.
    assert_eq!((total.counts.sent, total.never_completed), (8, 8));
    assert!(world.now_ns <= 13 * SECOND_NS, "{}", world.now_ns);
}

#[test]
fn rates_count_exactly_and_images_have_their_share() {
    let open = plan(
        r#"{"open": {"process": "constant", "rate_iops_per_image": 50}}"#,
        r#""ramp_s": 2, "duration_s": 60"#,
    );
    let mut world = Simulated::new(|_, now_ns| Some((now_ns + 2_000_000, Ok(()))));
    let (total, seconds) = load(&open, 64, &mut world);
    assert_eq!(total.counts.scheduled, 60 * 50 * 64);
    assert_eq!(total.counts.sent, 60 * 50 * 64);
    assert_eq!(total.lateness.max(), 0);
    assert_eq!(
        seconds.iter().map(|second| second.counts.sent).sum::<u64>(),
        62 * 50 * 64
    );
    let mut by_image = [0_u32; 64];
    world
        .submitted
        .iter()
        .for_each(|(_, request)| by_image[request.image as usize] += 1);
    assert_eq!(by_image, [62 * 50; 64]);
}

#[test]
fn the_requests_of_an_open_loop_do_not_depend_on_the_target() {
    let open = plan(
        r#"{"open": {"process": "poisson", "rate_iops": 1000}}"#,
        r#""duration_s": 20, "request_count": 5000"#,
    );
    let quick = &mut Simulated::new(|_, now_ns| Some((now_ns + 10, Ok(()))));
    let slow = &mut Simulated::new(stalls);
    load(&open, 3, quick);
    load(&open, 3, slow);
    assert_eq!(quick.submitted.len(), 5000);
    assert_eq!(quick.submitted, slow.submitted);
}

fn verifying(verify: &str, requests: &str, more: &str) -> Plan {
    parsed(&format!(
        r#"{{"target": {{"null": {{"image_bytes": {IMAGE_BYTES}, "images": 2}}}}, "requests": [{requests}],
            "arrival": {{"open": {{"process": "constant", "rate_iops": 3000}}}}, "duration_s": 60, "deadline_s": 5,
            "working_set_bytes": 1048576, "verify": "{verify}", {more}}}"#
    ))
}

const MIX: &str = r#"{"direction": "read", "block_bytes": 8192}, {"direction": "write", "block_bytes": 16384},
    {"direction": "write", "block_bytes": 4096}"#;

#[test]
fn what_was_written_is_read_in_any_order_and_a_lost_write_is_found() {
    for seed in 0..8 {
        let more = format!(r#""request_count": 5000, "seed": {seed}"#);
        let plan = verifying("on", MIX, &more);
        let model = move |number, now_ns| disorder(seed, now_ns, number);
        let mut world = Simulated::new(model);
        world.disk = Some(HashMap::new());
        let verified = load(&plan, 2, &mut world).0.verified.expect("it verifies");
        assert_eq!((verified.mismatches, verified.named.first()), (0, None));
        assert!(verified.blocks > 2000, "{verified:?}");

        let mut world = Simulated::new(model);
        (world.disk, world.loses) = (Some(HashMap::new()), Some(20));
        let verified = load(&plan, 2, &mut world).0.verified.expect("it verifies");
        assert!(verified.mismatches > 0);
        let is_lost = |it: &Mismatch| matches!(it.fault, verify::Fault::Stale | verify::Fault::Zero);
        assert!(verified.named.iter().all(is_lost), "{verified:?}");
    }
}

#[test]
fn another_load_finds_each_block_that_was_changed() {
    let sequential = r#""pattern": "sequential", "request_count": 512"#;
    let fill = verifying("on", r#"{"direction": "write", "block_bytes": 4096}"#, sequential);
    let read = verifying(
        "filled",
        r#"{"direction": "read", "block_bytes": 4096}"#,
        sequential,
    );
    let at_once = |_, now_ns| Some((now_ns + 1000, Ok(())));
    let mut world = Simulated::new(at_once);
    world.disk = Some(HashMap::new());
    load(&fill, 2, &mut world);
    let disk = world.disk.take().expect("it has one");
    assert_eq!(disk.len(), 512);
    let read_back = |disk: HashMap<(u32, u64), Vec<u8>>| {
        let mut world = Simulated::new(at_once);
        world.disk = Some(disk);
        let verified = load(&read, 2, &mut world).0.verified.expect("it verifies");
        assert_eq!(
            (verified.blocks, verified.mismatches),
            (512, verified.named.len() as u64)
        );
        verified.named
    };
    assert_eq!(read_back(disk.clone()), []);
    let mut changed = disk.clone();
    changed.get_mut(&(1, 7)).expect("it is written")[4095] ^= 1;
    changed.get_mut(&(0, 3)).expect("it is written")[33] ^= 1;
    changed.insert((0, 9), vec![1; 4096]);
    changed.remove(&(0, 200));
    changed.insert((1, 100), disk[&(0, 100)].clone());
    changed.insert((1, 101), disk[&(1, 102)].clone());
    let mut found = read_back(changed);
    found.sort_by_key(|it| (it.image, it.offset));
    assert!(
        found
            .iter()
            .all(|it| it.object.as_deref() == Some(&format!("object.{}.{}", it.image, it.offset)))
    );
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.image, it.offset / 4096, it.fault))
        .collect();
    assert_eq!(
        found,
        [
            (0, 3, verify::Fault::Checksum),
            (0, 9, verify::Fault::NoStamp),
            (0, 200, verify::Fault::Zero),
            (1, 7, verify::Fault::Checksum),
            (1, 100, verify::Fault::WrongPlace),
            (1, 101, verify::Fault::WrongPlace),
        ]
    );
    // What nobody is known to have written with a stamp may have none.
    let not_filled = verifying("on", r#"{"direction": "read", "block_bytes": 4096}"#, sequential);
    let mut world = Simulated::new(at_once);
    world.disk = Some(HashMap::from([((0, 9), vec![1; 4096])]));
    let verified = load(&not_filled, 2, &mut world).0.verified;
    assert_eq!(verified.map(|it| (it.blocks, it.mismatches)), Some((512, 0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_request_is_counted_once(
        closed in any::<bool>(),
        rate in 1_u32..3000,
        depth in 1_u32..20,
        images in 1_usize..4,
        in_flight_max in 1_u64..64,
        deadline_ms in 1_u64..2000,
        latency_ms in 1_u64..1500,
        seed in any::<u64>(),
    ) {
        let arrival = if closed {
            format!(r#"{{"closed": {{"queue_depth": {depth}}}}}"#)
        } else {
            format!(r#"{{"open": {{"process": "poisson", "rate_iops": {rate}, "bursts": {{"on_s": 0.3, "off_s": 0.2}}}}}}"#)
        };
        let more = format!(
            r#""duration_s": 3, "in_flight_max": {in_flight_max}, "seed": {seed}, "deadline_s": {}"#,
            deadline_ms as f64 / 1e3
        );
        // One in 16 fails, one in 16 never ends, others take up to twice the latency.
        let model = move |number: u64, now_ns: u64| {
            let chance = (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let at_ns = now_ns + chance % (2_000_000 * latency_ms);
            match chance % 16 {
                0 => None,
                1 => Some((at_ns, Err(5))),
                _ => Some((at_ns, Ok(()))),
            }
        };
        let mut world = Simulated::new(model);
        let (total, seconds) = load(&plan(&arrival, &more), images, &mut world);
        let ended = |directions: &ByDirection| -> u64 {
            directions.iter().flatten()
                .map(|it| it.from_intended.len() + it.failed.values().sum::<u64>()).sum()
        };
        prop_assert_eq!(total.counts.scheduled, ended(&total.directions));
        prop_assert_eq!(total.counts.sent, world.submitted.len() as u64);
        prop_assert_eq!(seconds.iter().map(|second| ended(&second.directions)).sum::<u64>(), total.counts.scheduled);
        prop_assert_eq!(seconds.iter().map(|second| second.counts.sent).sum::<u64>(), total.counts.sent);
        prop_assert!(world.in_flight_max as u64 <= in_flight_max);
        for (number, second) in seconds.iter().enumerate() {
            prop_assert_eq!(second.second, number as u64);
        }
        // The last start, and its deadline.
        prop_assert!(world.now_ns <= 3 * SECOND_NS + 2 * deadline_ms * 1_000_000);
    }
}
