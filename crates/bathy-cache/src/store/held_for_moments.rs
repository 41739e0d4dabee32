//! Who wants a device alone meets others who have it for moments: udev locks it while it looks at it, and programs that look for
//! parts of arrays and volumes open it alone.

use std::thread;
use std::time::Duration;

/// Longer than a look takes, and short for who waits in vain.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Tries to have something alone, for about a second as long as the error says that somebody else has it.
///
/// # Errors
/// The last one.
pub fn wait_for_moments<T, E>(
    open: impl FnMut() -> Result<T, E>,
    is_held: impl Fn(&E) -> bool,
) -> Result<T, E> {
    tried(TRIES, PAUSE, open, is_held)
}

fn tried<T, E>(
    tries: u32,
    pause: Duration,
    mut open: impl FnMut() -> Result<T, E>,
    is_held: impl Fn(&E) -> bool,
) -> Result<T, E> {
    for _ in 1..tries {
        match open() {
            Err(error) if is_held(&error) => thread::sleep(pause),
            opened => return opened,
        }
    }
    open()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_for_a_moment_is_waited_for_and_nothing_else() {
        let outcome = |of: fn(u32) -> Result<u32, &'static str>| {
            let mut count = 0;
            let result = tried(
                5,
                Duration::ZERO,
                || {
                    count += 1;
                    of(count)
                },
                |error| *error == "held",
            );
            (result, count)
        };
        let held_until_3 = |count| if count < 3 { Err("held") } else { Ok(count) };
        assert_eq!(outcome(held_until_3), (Ok(3), 3));
        assert_eq!(outcome(|_| Err("held")), (Err("held"), 5));
        assert_eq!(outcome(|_| Err("missing")), (Err("missing"), 1));
    }
}
