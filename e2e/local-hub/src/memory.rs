//! The memory of a hub's programs.

use std::fmt;

/// The memory of one program, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The program's name.
    pub program: &'static str,
    /// The current resident memory.
    pub resident: u64,
    pub peak: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        write!(f, "{}: {} MiB (peak {} MiB)", self.program, mib(self.resident), mib(self.peak))
    }
}

/// Reads the memory of a process from /proc; `None` if there is no such process, or no /proc.
pub(crate) fn of(program: &'static str, pid: u32) -> Option<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse(program, &status)
}

fn parse(program: &'static str, status: &str) -> Option<Memory> {
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    Some(Memory { program, resident: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_are_read_as_bytes() {
        let status = "Name:\tetcd\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let memory = parse("etcd", status).unwrap();
        assert_eq!((memory.resident, memory.peak), (1 << 20, 2 << 20));
        assert_eq!(memory.to_string(), "etcd: 1 MiB (peak 2 MiB)");
        // A zombie has no memory any more.
        assert_eq!(parse("etcd", "Name:\tetcd\nState:\tZ (zombie)\n"), None);
    }
}
