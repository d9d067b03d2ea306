//! Runs programs in turn and says what each took: peak memory, wall time, CPU time. `hack/measure-cp-creds.sh` runs it.
//!
//! In turn, because a machine that is busy for a second should not be so for one program alone. And by `wait4`, whose
//! figures are the kernel's own for the one process: polling misses the peak of what lives a few milliseconds, and GNU
//! time is not everywhere.
//!
//! Linux counts the memory of a child from before its `exec`, when it is still ours. So no peak below our own can be
//! seen; what we hold is therefore kept small, and said where it hides what was looked for.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use wait4::Wait4 as _;

const USAGE: &str = "usage: measure RUNS PROGRAM [ARG]... [-- PROGRAM [ARG]...]...
prints a line for each program: peak KiB, median wall, least wall, median CPU, all in microseconds";

/// What one run took.
struct Run {
    peak: u64,
    wall: Duration,
    cpu: Duration,
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let Some((runs, rest)) = arguments.split_first() else { return Err(io::Error::other(USAGE)) };
    let runs: usize = runs.parse().map_err(|_| io::Error::other(USAGE))?;
    let programs: Vec<_> =
        rest.split(|argument| argument == "--").filter(|program| !program.is_empty()).collect();
    let mut taken: Vec<Vec<Run>> = programs.iter().map(|_| Vec::with_capacity(runs)).collect();
    for program in &programs {
        // The first run reads the program from disk, which is the disk's affair.
        run(program)?;
    }
    for _ in 0..runs {
        for (program, taken) in programs.iter().zip(&mut taken) {
            taken.push(run(program)?);
        }
    }
    let (mut stdout, own_peak) = (io::stdout().lock(), own_peak()?);
    for runs in &taken {
        let peak = runs.iter().map(|run| run.peak).max().unwrap_or_default() / 1024;
        if peak <= own_peak {
            writeln!(
                io::stderr(),
                "no peak below {own_peak} KiB can be seen: {peak} KiB is too much"
            )?;
        }
        let walls = sorted(runs, |run| run.wall);
        let cpus = sorted(runs, |run| run.cpu);
        let least = walls.first().copied().unwrap_or_default().as_micros();
        writeln!(stdout, "{peak} {} {least} {}", median(&walls), median(&cpus))?;
    }
    Ok(())
}

fn run(program: &[String]) -> io::Result<Run> {
    let (path, arguments) = program.split_first().ok_or_else(|| io::Error::other(USAGE))?;
    let begin = Instant::now();
    let child =
        Command::new(path).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let end = child.wait4()?;
    let wall = begin.elapsed();
    if !end.status.success() {
        return Err(io::Error::other(format!("{path}: {}", end.status)));
    }
    Ok(Run { peak: end.rusage.maxrss, wall, cpu: end.rusage.utime + end.rusage.stime })
}

fn sorted(runs: &[Run], figure: impl Fn(&Run) -> Duration) -> Vec<Duration> {
    let mut figures: Vec<_> = runs.iter().map(figure).collect();
    figures.sort();
    figures
}

fn median(sorted: &[Duration]) -> u128 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default().as_micros()
}

/// Our own peak so far, in KiB.
fn own_peak() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.and_then(|peak| peak.parse().ok())
        .ok_or_else(|| io::Error::other("/proc/self/status has no VmHWM"))
}
