//! What processes take of the machine, and how fast its disk is.

use std::{fs::OpenOptions, io::Write as _, path::Path, process::Command, time::Duration};

use anyhow::{Context, ensure};
use tokio::time::Instant;

/// Memory of a process that is in use now, in bytes.
pub fn resident(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the status of a process")?;
    resident_of(&status).context("a status without VmRSS")
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// How much processor time a process has used so far.
pub fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the times of a process")?;
    // Linux counts in hundredths of a second here, on every machine that these programs are built for.
    Ok(Duration::from_millis(10 * ticks_of(&stat).context("a process without times")?))
}

/// A process, as Linux shows it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Who has started it.
    pub parent: u32,
    /// Its program, or what is shown of the name.
    pub name: String,
    /// Processor time so far.
    pub used: Duration,
    /// Of those that it has started and that have ended.
    pub used_by_ended: Duration,
}

/// Every process of the machine. One that ends meanwhile is left out.
pub fn processes() -> anyhow::Result<Vec<Process>> {
    let directory = std::fs::read_dir("/proc").context("the processes")?;
    let pids = directory.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let stats = pids.filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    Ok(stats.filter_map(|stat| process_of(&stat)).collect())
}

fn process_of(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let parent = rest.split(' ').nth(1)?.parse().ok()?;
    let times: Vec<u64> = rest.split(' ').skip(11).take(4).map_while(|ticks| ticks.parse().ok()).collect();
    let [user, system, ended_user, ended_system] = times[..] else { return None };
    let time = |ticks| Duration::from_millis(10 * ticks);
    let (used, used_by_ended) = (time(user + system), time(ended_user + ended_system));
    Some(Process { pid: pid.parse().ok()?, parent, name: name.to_owned(), used, used_by_ended })
}

/// User and system time. The name may hold anything, so what follows is counted from its end.
fn ticks_of(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Lets this process, and those that it starts from now on, have so many files open.
pub fn allow_files(count: u64) -> anyhow::Result<()> {
    let status = Command::new("prlimit")
        .args(["--pid", &std::process::id().to_string(), &format!("--nofile={count}:{count}")])
        .status()
        .context("prlimit does not start")?;
    ensure!(status.success(), "no {count} files may be open here");
    Ok(())
}

/// The median time that writing a page durably takes, in `directory`.
pub fn durable_write(directory: &Path) -> anyhow::Result<Duration> {
    let path = directory.join("durable");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).context("a file")?;
    let mut times = Vec::new();
    for _ in 0..200 {
        let from = Instant::now();
        file.write_all(&[7; 8192])?;
        file.sync_data()?;
        times.push(from.elapsed());
    }
    std::fs::remove_file(&path)?;
    times.sort();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_behind_a_name_with_spaces_and_brackets_are_found() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 17 5 3 4 20 0 3 0 100 0 0";
        assert_eq!(ticks_of(stat), Some(22));
        let process = process_of(stat).unwrap();
        assert_eq!((process.pid, process.parent, process.name.as_str()), (42, 1, "a) b (c"));
        assert_eq!((process.used, process.used_by_ended), (Duration::from_millis(220), Duration::from_millis(70)));
        assert_eq!(resident_of("Name:\tx\nVmRSS:\t   2048 kB\n"), Some(2 * 1024 * 1024));
    }

    #[test]
    fn this_process_takes_memory() {
        assert!(resident(std::process::id()).unwrap() > 100_000);
        assert!(processor_time(u32::MAX).is_err());
    }
}
