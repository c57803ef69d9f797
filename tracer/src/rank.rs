//! The place of this process in a parallel job, from what launchers put into the environment.

use rtrace_model::Rank;

/// The variables of one launcher.
struct Launcher {
    rank: &'static str,
    size: &'static str,
    job: &'static str,
}

/// Those that know best come first: under Slurm, `mpirun` starts processes of its own.
const LAUNCHERS: [Launcher; 4] = [
    // Open MPI: mpirun(1)
    Launcher { rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", job: "PMIX_NAMESPACE" },
    // MPICH, Intel MPI, MVAPICH: the process management interface
    Launcher { rank: "PMI_RANK", size: "PMI_SIZE", job: "PMI_JOBID" },
    // Anything else that speaks PMIx
    Launcher { rank: "PMIX_RANK", size: "PMIX_SIZE", job: "PMIX_NAMESPACE" },
    // srun(1)
    Launcher { rank: "SLURM_PROCID", size: "SLURM_NTASKS", job: "SLURM_JOB_ID" },
];

/// The rank of this process, if a launcher has started it.
///
/// `SLURM_PROCID` is set for a job of one task too, which is no parallel job.
pub fn from_environment() -> Option<Rank> {
    rank(&|name| std::env::var(name).ok())
}

/// The rank of a process, if a launcher has started it, and its environment can be read: it is that of its start.
pub fn of_process(pid: u32) -> Option<u32> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variable = |name: &str| {
        let mut words = environment.split(|&byte| byte == 0);
        let value = words.find_map(|word| word.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        String::from_utf8(value.to_vec()).ok()
    };
    Some(rank(&variable)?.rank)
}

fn rank(variable: &dyn Fn(&str) -> Option<String>) -> Option<Rank> {
    LAUNCHERS.iter().find_map(|launcher| {
        let rank = variable(launcher.rank)?.parse().ok()?;
        let size = variable(launcher.size).and_then(|size| size.parse().ok());
        let is_parallel = launcher.rank != "SLURM_PROCID" || size > Some(1);
        let job = variable(launcher.job).or_else(|| variable("SLURM_JOB_ID"));
        is_parallel.then_some(Rank { rank, size, job })
    })
}

/// The name of the directory that holds the trace of one rank.
pub fn directory_name(rank: &Rank) -> String {
    format!("rank-{:04}", rank.rank)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<Rank> {
        rank(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn each_launcher_is_understood() {
        let rank = |rank, size, job: Option<&str>| Some(Rank { rank, size, job: job.map(str::to_owned) });
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")]), rank(3, Some(4), None));
        assert_eq!(of(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("SLURM_JOB_ID", "77")]), rank(1, Some(2), Some("77")));
        assert_eq!(of(&[("PMIX_RANK", "5"), ("PMIX_NAMESPACE", "prte-9@1")]), rank(5, None, Some("prte-9@1")));
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")]), rank(0, Some(2), None));
        let both = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("OMPI_COMM_WORLD_RANK", "1")];
        assert_eq!(of(&both), rank(1, None, None));
    }

    #[test]
    fn a_process_has_the_rank_that_it_was_started_with() {
        let program = |variables: &[(&str, &str)]| {
            let mut program = std::process::Command::new("sleep");
            program.arg("60").env_clear().envs(variables.iter().copied()).spawn().unwrap()
        };
        for (variables, rank) in [
            (&[("NOT_PMI_RANK", "9"), ("PMI_RANK", "17"), ("PMI_SIZE", "20")][..], Some(17)),
            (&[("PMI_RANKS", "9")], None),
            (&[], None),
        ] {
            let mut child = program(variables);
            assert_eq!(of_process(child.id()), rank, "{variables:?}");
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(of_process(child.id()), None);
        }
    }

    #[test]
    fn a_single_task_or_nonsense_is_no_rank() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]), None);
        assert_eq!(of(&[("SLURM_PROCID", "0")]), None);
        assert_eq!(of(&[("PMI_RANK", "-1")]), None);
    }

    #[test]
    fn directories_sort_by_rank() {
        let name = |rank| directory_name(&Rank { rank, size: None, job: None });
        assert_eq!((name(3), name(12_345)), ("rank-0003".to_owned(), "rank-12345".to_owned()));
    }
}
