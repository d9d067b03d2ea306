//! Runs a program several times and says what it took: peak memory, wall time, CPU time. `hack/measure-cp-creds.sh`
//! runs it.
//!
//! By `wait4`, whose figures are the kernel's own for the one process: polling misses the peak of what lives a few
//! milliseconds, and GNU time is not everywhere.
//!
//! Linux counts the memory of a child from before its `exec`, when it is still ours. So no peak below our own can be
//! seen; what we hold is therefore kept small, and said where it hides what was looked for.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use wait4::Wait4 as _;

const USAGE: &str = "usage: measure RUNS PROGRAM [ARG]...
prints peak KiB, median wall, least wall, median CPU, all in microseconds";

/// What one run took.
struct Run {
    peak: u64,
    wall: Duration,
    cpu: Duration,
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let Some((runs, program)) = arguments.split_first() else {
        return Err(io::Error::other(USAGE));
    };
    let runs: usize = runs.parse().map_err(|_| io::Error::other(USAGE))?;
    // The first run reads the program from disk, which is the disk's affair.
    run(program)?;
    let taken = (0..runs).map(|_| run(program)).collect::<io::Result<Vec<_>>>()?;
    let peak = taken.iter().map(|run| run.peak).max().unwrap_or_default() / 1024;
    let own_peak = own_peak()?;
    if peak <= own_peak {
        let what = format!("no peak below {own_peak} KiB can be seen: {peak} KiB is too much");
        writeln!(io::stderr(), "{what}")?;
    }
    let walls = sorted(&taken, |run| run.wall);
    let cpus = sorted(&taken, |run| run.cpu);
    let least = walls.first().copied().unwrap_or_default().as_micros();
    writeln!(io::stdout(), "{peak} {} {least} {}", median(&walls), median(&cpus))
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
