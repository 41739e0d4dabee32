//! The program: arguments in, exit code out. The crate's binary is it, and so is the Python core's way to start it.

use std::io::Write;
use std::sync::Arc;

use bathy_fuse::{MountOptions, StopSignals, bind_socket, serve};

use crate::control::Control;
use crate::disk::{Clock, Disk, Disks};
use crate::lead;
use crate::model::Settings;
use crate::options::{Command, DiskSpec, HELP, Options, UsageError, parse};
use crate::store::Backing;

/// Carry out a command line (without the program's name) and return the exit code: 0 done, 2 error. Errors are said on
/// stderr. The caller has no other threads yet: signals are blocked for those that this one starts.
pub fn main(arguments: impl IntoIterator<Item = String>) -> u8 {
    let said = match parse(arguments) {
        Ok(Command::Help) => write!(std::io::stdout(), "{HELP}"),
        Ok(Command::Version) => writeln!(std::io::stdout(), "bathy-simdisk {}", env!("CARGO_PKG_VERSION")),
        Ok(Command::Serve(options)) => return finish(run(&options)),
        Err(error) => return finish(Err(error)),
    };
    if said.is_ok() { 0 } else { 2 }
}

fn finish(result: Result<(), UsageError>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("bathy-simdisk: {error}");
            2
        }
    }
}

fn failure(message: String, hint: &str) -> UsageError {
    UsageError {
        message,
        hint: hint.to_owned(),
    }
}

fn run(options: &Options) -> Result<(), UsageError> {
    if options.die_with_parent {
        let asked = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
        asked.map_err(|error| failure(format!("--die-with-parent: {error}"), "leave the option out"))?;
    }
    let signals = StopSignals::block().map_err(|error| {
        failure(
            format!("signals cannot be blocked: {error}"),
            "this is a fault of the system",
        )
    })?;
    let clock = Clock::default();
    let made: Result<Vec<Arc<Disk>>, UsageError> =
        options.disks.iter().map(|spec| disk(spec, clock)).collect();
    let disks = made?;
    let listener = bind_socket(&options.control).map_err(|error| {
        let message = format!(
            "the control socket {} cannot be made: {error}",
            options.control.display()
        );
        failure(
            message,
            "name a path in a directory that exists and that no other bathy-simdisk uses",
        )
    })?;
    let threads = disks.iter().map(Disk::start).collect::<std::io::Result<Vec<_>>>();
    let threads = threads.map_err(|error| {
        failure(
            format!("no thread for a disk: {error}"),
            "raise the limit of tasks",
        )
    })?;
    let mount = MountOptions {
        directory: options.mount.clone(),
        program: "bathy-simdisk",
        threads: options.threads,
        // A disk takes commands and answers them whatever the processors do.
        real_time: true,
    };
    let control = Arc::new(Control::new(disks.clone(), clock));
    let ready = || {
        let mechanical: Vec<_> = disks.iter().filter(|disk| disk.is_mechanical()).collect();
        if let Some(first) = mechanical.first() {
            match lead::measure(first, &options.mount.join(first.name())) {
                Ok(lead_ns) => mechanical.iter().for_each(|disk| disk.restart_with_lead(lead_ns)),
                Err(error) => eprintln!("bathy-simdisk: replies have no lead: {error}"),
            }
        }
        match control.start(listener) {
            Ok(()) => eprintln!(
                "bathy-simdisk: serving {} disk(s) in {}",
                disks.len(),
                options.mount.display()
            ),
            Err(error) => eprintln!("bathy-simdisk: no control socket: {error}"),
        }
    };
    let mut stopped = Ok(());
    let served = serve(Arc::new(Disks(disks.clone())), &mount, &signals, ready, || {
        for disk in &disks {
            if let Err(error) = disk.stop() {
                stopped = Err(failure(
                    format!("{}: data could not be written: {error}", disk.name()),
                    "free some space",
                ));
            }
        }
        for thread in threads {
            drop(thread.join());
        }
    });
    let _gone = std::fs::remove_file(&options.control);
    served.map_err(|error| {
        failure(
            error.to_string(),
            "run as root on a machine with /dev/fuse, and give an empty directory of your own",
        )
    })?;
    stopped
}

fn disk(spec: &DiskSpec, clock: Clock) -> Result<Arc<Disk>, UsageError> {
    let opened = match &spec.backing {
        None => Backing::memory(spec.size_bytes),
        Some(path) => Backing::open(path, spec.size_bytes),
    };
    let backing = opened.map_err(|error| {
        let place = spec
            .backing
            .as_ref()
            .map_or("memory".to_owned(), |path| path.display().to_string());
        failure(
            format!("{}: {place} cannot hold the data: {error}", spec.name),
            "name another file, or remove this one",
        )
    })?;
    let settings = Settings {
        size_bytes: spec.size_bytes,
        seed: spec.seed,
        write_cache: spec.write_cache,
    };
    Ok(Arc::new(Disk::new(
        spec.name.clone(),
        spec.profile,
        &settings,
        backing,
        clock,
    )))
}
