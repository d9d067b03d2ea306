//! The memory and CPU time of a process, from /proc.

/// Clock ticks per second in /proc: `USER_HZ`, which is 100 on every architecture of Linux that this project builds
/// for.
const TICKS: f64 = 100.0;

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// The largest resident memory since its start, in KiB.
    pub peak_kib: u64,
    /// The resident memory, in KiB.
    pub resident_kib: u64,
    /// CPU time in user and kernel mode since its start.
    pub cpu_seconds: f64,
}

impl Usage {
    /// Reads it; `None` if the process has ended.
    pub fn of(pid: u32) -> Option<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        parse(&read("status")?, &read("stat")?)
    }

    /// The sum over processes.
    pub fn sum(usages: impl IntoIterator<Item = Self>) -> Self {
        usages.into_iter().fold(Self::default(), |sum, usage| Self {
            peak_kib: sum.peak_kib + usage.peak_kib,
            resident_kib: sum.resident_kib + usage.resident_kib,
            cpu_seconds: sum.cpu_seconds + usage.cpu_seconds,
        })
    }
}

fn parse(status: &str, stat: &str) -> Option<Usage> {
    let kib = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    // `PID (NAME) STATE ...`, where the name can contain anything: `utime` and `stime` are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u32>().ok());
    let ticks = ticks.sum::<Option<u32>>()?;
    Some(Usage {
        peak_kib: kib("VmHWM:")?,
        resident_kib: kib("VmRSS:")?,
        cpu_seconds: f64::from(ticks) / TICKS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\thub-addons\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";

    #[test]
    fn memory_and_time_are_read_whatever_the_name_contains() {
        let stat = "42 (a) name) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20";
        let usage = parse(STATUS, stat).unwrap();
        assert_eq!(usage, Usage { peak_kib: 2048, resident_kib: 1024, cpu_seconds: 1.75 });
        let both = Usage::sum([usage, usage]);
        assert_eq!(both, Usage { peak_kib: 4096, resident_kib: 2048, cpu_seconds: 3.5 });
    }

    #[test]
    fn a_process_that_has_ended_uses_nothing() {
        assert_eq!(parse("Name:\tx\nState:\tZ (zombie)\n", "42 (x) Z 1 2 3"), None);
        assert!(Usage::of(std::process::id()).unwrap().peak_kib > 0);
    }
}
