//! No access allocates: everything is allocated when a policy is made.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bathy_policy::{
    Admission, NHit, PolicyKind, PolicyOptions, StreamBypass, admission::NHitOptions,
    admission::StreamBypassOptions, build,
};

struct Counting;

thread_local! {
    /// Per thread, as the test harness has threads of its own. Initialised by a constant and without a destructor, so
    /// that reading it inside the allocator does not itself allocate.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn allocations() -> u64 {
    ALLOCATIONS.get()
}

// SAFETY: every call is passed on unchanged to the system allocator, which meets the contract; counting does not
// touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller meets the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, that is from the system allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn accesses_do_not_allocate() {
    let key = |step: u64| {
        let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if step % 3 == 0 { mixed % 5000 } else { mixed % 400 }
    };
    let before_any = allocations();
    for kind in PolicyKind::ALL {
        for universe in [None, Some(5000)] {
            let mut policy = build(kind, 1000, universe, PolicyOptions::default());
            let before = allocations();
            for step in 0..100_000 {
                policy.access(key(step));
                if step % 50 == 0 {
                    policy.remove(key(step / 2));
                }
            }
            assert_eq!(allocations(), before, "{kind} {universe:?}");
        }
    }
    assert!(allocations() > before_any, "the counter counts");
    let mut n_hit = NHit::new(NHitOptions {
        threshold: 3,
        fill_trigger: 0.0,
        tracked_keys: 1000,
    });
    let mut bypass = StreamBypass::new(StreamBypassOptions::default());
    let before = allocations();
    for step in 0..100_000 {
        n_hit.admit(key(step), step, 4096);
        bypass.passes_by(key(step), 4096);
    }
    assert_eq!(allocations(), before, "filters");
}
