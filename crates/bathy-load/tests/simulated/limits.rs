//! What a load may not exceed, and what it says when something else holds it up.

use bathy_load::account::{Fault, Figures, Total};
use bathy_load::engine::Engine;
use bathy_load::plan::{Direction, Plan};
use proptest::prelude::*;

use crate::world::{IMAGE_BYTES, SECOND_NS, Simulated, disorder, load, plan, plan_of, stalls};

fn reads(total: &Total) -> &Figures {
    total.directions[Direction::Read as usize]
        .as_ref()
        .expect("it reads")
}

#[test]
fn a_closed_loop_never_has_more_in_flight_than_its_depth_even_of_requests_that_have_failed() {
    let closed = plan(
        r#"{"closed": {"queue_depth": 5}}"#,
        r#""duration_s": 5, "deadline_s": 0.01"#,
    );
    let mut world = Simulated::new(|number, now_ns| disorder(7, now_ns, number));
    let (total, _) = load(&closed, 3, &mut world);
    assert_eq!((world.of_an_image_max, total.in_flight_max), (5, 15));
    assert!(
        reads(&total).failed[&Fault::Deadline] > 100,
        "{:?}",
        reads(&total).failed
    );
}

#[test]
fn memory_holds_requests_back_as_the_cap_does() {
    let open = plan_of(
        r#"{"direction": "read", "block_bytes": 1048576}"#,
        r#"{"open": {"process": "constant", "rate_iops": 100}}"#,
        r#""duration_s": 10, "memory_bytes_max": 67108864"#,
    );
    let mut world = Simulated::new(stalls);
    let (total, _) = load(&open, 1, &mut world);
    assert_eq!((world.in_flight_max, total.in_flight_max), (64, 64));
    assert_eq!((total.counts.sent, total.counts.held), (1000, 100 - 64));
    // What all write is there once, and needs no more for each.
    let open = plan_of(
        r#"{"direction": "write", "block_bytes": 1048576}"#,
        r#"{"open": {"process": "constant", "rate_iops": 100}}"#,
        r#""duration_s": 10, "memory_bytes_max": 67108864"#,
    );
    assert_eq!(load(&open, 1, &mut Simulated::new(stalls)).0.counts.held, 0);
}

#[test]
fn a_load_that_needs_more_memory_than_it_may_have_is_refused() {
    let mixed = |more: &str| {
        let requests =
            r#"{"direction": "read", "block_bytes": 4096}, {"direction": "write", "block_bytes": 4096}"#;
        plan_of(
            requests,
            r#"{"open": {"process": "constant", "rate_iops": 100}}"#,
            more,
        )
    };
    // 2 MiB for each of the two images, and a request's own.
    for (bytes_max, fits) in [((4 << 20) + 4096, true), (4 << 20, false)] {
        let plan = mixed(&format!(
            r#""duration_s": 1, "verify": "on", "memory_bytes_max": {bytes_max}"#
        ));
        let mut world = Simulated::new(stalls);
        let engine = Engine::new(&plan, None, &[IMAGE_BYTES; 2], &mut world);
        let refused = engine.err().map(|failure| failure.message);
        assert_eq!(refused.is_none(), fits, "{refused:?}");
        assert!(
            fits || refused.is_some_and(|it| it.contains("and 4194304 for the blocks that verify remembers"))
        );
    }
}

/// A machine that needs 10 µs to send one.
#[test]
fn what_a_backlog_delays_is_no_lateness_of_this_machine() {
    let open = plan(
        r#"{"open": {"process": "constant", "rate_iops": 10000}}"#,
        r#""duration_s": 10, "in_flight_max": 5000"#,
    );
    let mut world = Simulated::new(stalls);
    world.submit_ns = 10_000;
    let (total, _) = load(&open, 1, &mut world);
    // In the second that the target stalls 5,000 are held. Sending them takes 50 ms, in which 500 others come; these take
    // 5 ms, and only that is this machine's.
    assert!((5_450..=5_550).contains(&total.counts.held), "{:?}", total.counts);
    let late_ns = total.lateness.max();
    assert!((4_000_000..6_000_000).contains(&late_ns), "{late_ns}");
}

#[test]
fn a_machine_that_is_too_slow_is_seen_behind_a_backlog_too() {
    let open = plan(
        r#"{"open": {"process": "constant", "rate_iops": 10000}}"#,
        r#""duration_s": 10, "in_flight_max": 1000"#,
    );
    let mut world = Simulated::new(stalls);
    world.submit_ns = 200_000;
    let (total, _) = load(&open, 1, &mut world);
    // Half of what is due can be sent.
    let late_s = |quantile| total.lateness.value_at_quantile(quantile) as f64 / 1e9;
    assert!(
        late_s(0.5) > 1.0 && late_s(1.0) > 4.0,
        "{} {}",
        late_s(0.5),
        late_s(1.0)
    );
}

#[test]
fn a_request_that_completes_at_its_deadline_has_failed_once_whenever_that_is_seen() {
    let open = plan(
        r#"{"open": {"process": "constant", "rate_iops": 1}}"#,
        r#""duration_s": 3, "deadline_s": 1"#,
    );
    for (oversleeps_ns, never_completed) in [(0, 1), (10_000_000, 0)] {
        // A nanosecond before it, at it, and after it.
        let mut world = Simulated::new(|number, _| Some(((number + 1) * SECOND_NS + number - 1, Ok(()))));
        world.oversleeps_ns = oversleeps_ns;
        let (total, seconds) = load(&open, 1, &mut world);
        assert_eq!(reads(&total).from_intended.len(), 1);
        assert_eq!(reads(&total).failed.get(&Fault::Deadline), Some(&2));
        assert_eq!(total.never_completed, never_completed);
        let failed = |second: &bathy_load::account::Second| -> u64 {
            let figures = second.directions.iter().flatten();
            figures.map(|it| it.failed.values().sum::<u64>()).sum()
        };
        assert_eq!(seconds.iter().map(failed).sum::<u64>(), 2);
    }
}

#[test]
fn what_was_measured_is_as_long_as_the_requests_lasted() {
    let measured_ms = |arrival: &str, more: &str| {
        let plan = plan(arrival, &format!(r#""ramp_s": 1, "duration_s": 60{more}"#));
        let mut world = Simulated::new(|_, now_ns| Some((now_ns + 10_000_000, Ok(()))));
        load(&plan, 1, &mut world).0.measured_ns / 1_000_000
    };
    let open = r#"{"open": {"process": "constant", "rate_iops": 1}}"#;
    let closed = r#"{"closed": {"queue_depth": 1}}"#;
    // The last one starts a second before the end, and nothing comes after it.
    assert_eq!(measured_ms(open, ""), 60_000);
    assert_eq!(measured_ms(open, r#", "request_count": 61"#), 60_000);
    assert_eq!(measured_ms(open, r#", "request_count": 11"#), 9_010);
    assert_eq!(measured_ms(open, r#", "request_count": 1"#), 0);
    assert_eq!(measured_ms(closed, ""), 60_000);
    assert_eq!(measured_ms(closed, r#", "request_count": 300"#), 2_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever its numbers are, a plan is refused, or its load can be made in the memory that it may take.
    #[test]
    fn no_plan_is_too_much_to_be_refused(
        numbers in prop::array::uniform8(any::<u64>()),
        shifts in prop::array::uniform8(0_u32..64),
        logarithms in prop::array::uniform3(-12.0_f64..12.0),
        closed in any::<bool>(),
        pattern in prop::sample::select(vec![r#""random""#, r#""sequential""#, r#"{"zipf": {"theta": 0.99}}"#]),
        verify in prop::sample::select(vec!["off", "on"]),
    ) {
        // Of all magnitudes.
        let of = |index: usize| numbers[index] >> shifts[index];
        let real = logarithms.map(f64::exp);
        let aligned = |index: usize, usual| if numbers[index] % 4 == 0 { of(index) / 4096 * 4096 } else { usual };
        let arrival = if closed {
            format!(r#"{{"closed": {{"queue_depth": {}}}}}"#, (of(0) as u16).max(1))
        } else {
            let bursts = format!(r#"{{"on_s": {:e}, "off_s": {:e}}}"#, real[1], real[2]);
            format!(r#"{{"open": {{"process": "poisson", "rate_iops_per_image": {:e}, "bursts": {bursts}}}}}"#, real[0])
        };
        let block_bytes = (1 + of(1) % 8) * 4096;
        let text = format!(
            r#"{{"target": {{"null": {{"image_bytes": {image_bytes}, "images": {images}}}}}, "arrival": {arrival},
                "requests": [{{"direction": "read", "block_bytes": {block_bytes}}}, {{"direction": "write", "block_bytes": 4096}}],
                "pattern": {pattern}, "verify": "{verify}", "offset_bytes": {offset}, "working_set_bytes": {working_set},
                "duration_s": 1, "in_flight_max": {in_flight}, "memory_bytes_max": {memory}}}"#,
            image_bytes = of(2), images = 1 + of(3) % 4200, offset = aligned(4, 0), working_set = aligned(5, 1 << 20),
            in_flight = 1 + of(6) % 1_010_000, memory = of(7) % (64 << 20)
        );
        let Ok(plan) = Plan::parse(text.as_bytes()) else {
            return Ok(());
        };
        let sizes = vec![of(2); plan.images()];
        let mut world = Simulated::new(stalls);
        let _engine = Engine::new(&plan, None, &sizes, &mut world);
    }
}
