//! Users as whom rtrace, run by root, starts programs: the command of `run`, sinks and metric plug-ins.
//!
//! Such a program gets nothing of root's: user and group ids, all supplementary groups, and the variables of the
//! environment that name the user are another's before it is executed.
//!
//! Who a user is, is asked of the programs `getent` and `id`, which know every directory of users that the machine has.
//! A static rtrace could not: the C library would load modules of another C library into it.

use std::ffi::CString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::{fmt, fs, io};

use nix::unistd::{self, Gid, Uid};
use rtrace_bpf::Observer;
use rtrace_exporters::Owner;

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    /// Variables that name it, and what is its own.
    variables: Vec<(&'static str, String)>,
}

/// Why a program cannot be started as a user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is none of that name or number.
    #[error("failed to find user `{0}`: the system knows none of that name")]
    Unknown(String),
    /// Only root may be another.
    #[error("failed to run a program as user `{0}`: only root may")]
    NotRoot(String),
}

impl User {
    /// The user of this name, or number.
    ///
    /// # Errors
    /// There is none, or we may not be it.
    pub fn named(name: &str) -> Result<User, Error> {
        let user = User::known(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
        let own = (unistd::geteuid(), unistd::getegid());
        if !own.0.is_root() && own != (user.uid, user.gid) {
            return Err(Error::NotRoot(name.to_owned()));
        }
        Ok(user)
    }

    /// The user of these ids, whether the system has a name for it or not.
    pub fn of(owner: Owner) -> User {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        let known = User::known(&uid.to_string()).filter(|user| user.gid == gid);
        known.unwrap_or(User { uid, gid, groups: vec![gid], variables: Vec::new() })
    }

    /// What the system knows of the user of this name, or number.
    fn known(name: &str) -> Option<User> {
        let (line, from_file);
        let entry = match answer(["getent", "passwd", "--", name]) {
            Ok(answer) => {
                line = answer?;
                Entry::of(line.lines().next()?)?
            }
            // A container without its tools.
            Err(_) => {
                from_file = fs::read_to_string("/etc/passwd").ok()?;
                Entry::find(&from_file, name)?
            }
        };
        let groups = match answer(["id", "-G", "--", entry.name]) {
            Ok(answer) => answer?.split_whitespace().filter_map(|gid| gid.parse().ok()).map(Gid::from_raw).collect(),
            Err(_) => groups_in(&fs::read_to_string("/etc/group").unwrap_or_default(), &entry),
        };
        Some(entry.user(groups))
    }

    /// The name of the user as whom we run, or the number of one without a name.
    pub fn own_name() -> String {
        let uid = unistd::getuid().to_string();
        let known = User::known(&uid).map(|user| user.variables).unwrap_or_default();
        let name = known.into_iter().find_map(|(variable, name)| (variable == "USER").then_some(name));
        name.unwrap_or_else(|| format!("user {uid}"))
    }

    /// Who may look at what this user runs.
    pub fn observer(&self) -> Observer {
        Observer { user: self.uid.as_raw(), group: self.gid.as_raw(), capabilities: 0 }
    }

    /// Lets a command be executed as this user.
    pub fn run(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let user = self.clone();
        let is_root = unistd::geteuid().is_root();
        // SAFETY: between fork and exec the closure only makes system calls on memory that is ready.
        unsafe { command.pre_exec(move || if is_root { user.become_it() } else { Ok(()) }) };
    }

    /// An environment, in its order, as this user has it.
    pub fn adapt(&self, mut environment: Vec<CString>) -> Vec<CString> {
        for (name, value) in &self.variables {
            let Ok(variable) = CString::new(format!("{name}={value}")) else { continue };
            let is_it =
                |known: &&mut CString| known.as_bytes().split(|&byte| byte == b'=').next() == Some(name.as_bytes());
            match environment.iter_mut().find(is_it) {
                Some(known) => *known = variable,
                None => environment.push(variable),
            }
        }
        environment
    }

    /// Makes this process the user's; groups first, for which it must still be root.
    fn become_it(&self) -> io::Result<()> {
        unistd::setgroups(&self.groups)?;
        unistd::setresgid(self.gid, self.gid, self.gid)?;
        Ok(unistd::setresuid(self.uid, self.uid, self.uid)?)
    }
}

/// What a program answers; nothing where it fails.
///
/// # Errors
/// There is no such program.
fn answer<const N: usize>(words: [&str; N]) -> io::Result<Option<String>> {
    let mut program = Command::new(words[0]);
    let output = program.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    Ok(String::from_utf8(output.stdout).ok().filter(|_| output.status.success()))
}

/// A line as in `/etc/passwd`.
struct Entry<'a> {
    name: &'a str,
    uid: Uid,
    gid: Gid,
    home: &'a str,
    shell: &'a str,
}

impl<'a> Entry<'a> {
    fn of(line: &'a str) -> Option<Entry<'a>> {
        let fields: Vec<&str> = line.split(':').collect();
        let &[name, _, uid, gid, _, home, shell] = fields.as_slice() else { return None };
        let shell = if shell.is_empty() { "/bin/sh" } else { shell };
        Some(Entry { name, uid: Uid::from_raw(uid.parse().ok()?), gid: Gid::from_raw(gid.parse().ok()?), home, shell })
    }

    /// The one of this number or name; `getent`, too, takes digits for a number.
    fn find(file: &'a str, name: &str) -> Option<Entry<'a>> {
        let uid = name.parse::<u32>();
        let is_meant = |entry: &Entry<'_>| match &uid {
            Ok(uid) => entry.uid.as_raw() == *uid,
            Err(_) => entry.name == name,
        };
        file.lines().filter_map(Entry::of).find(is_meant)
    }

    fn user(&self, groups: Vec<Gid>) -> User {
        let variables = [("HOME", self.home), ("USER", self.name), ("LOGNAME", self.name), ("SHELL", self.shell)];
        let variables = variables.map(|(name, value)| (name, value.to_owned()));
        User { uid: self.uid, gid: self.gid, groups, variables: variables.into() }
    }
}

/// The groups of a user, as in `/etc/group`.
fn groups_in(file: &str, user: &Entry<'_>) -> Vec<Gid> {
    let group = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let &[_, _, gid, members] = fields.as_slice() else { return None };
        let gid = gid.parse().ok().map(Gid::from_raw)?;
        members.split(',').any(|member| member == user.name).then_some(gid).filter(|&gid| gid != user.gid)
    };
    std::iter::once(user.gid).chain(file.lines().filter_map(group)).collect()
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.uid)
    }
}

/// A command for the shell, in a process group of its own, as this user or as us.
pub fn shell(command: &str, user: Option<&User>) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).process_group(0);
    if let Some(user) = user {
        user.run(&mut shell);
    }
    shell
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::ffi::CStr;

    use super::*;

    fn said(command: &str, user: &User) -> String {
        let output = shell(command, Some(user)).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    #[test]
    fn a_program_of_another_user_has_nothing_of_roots() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root may be another user");
        }
        let user = User::named("nobody").unwrap();
        assert_eq!(User::named(&user.to_string()).unwrap(), user);
        let ids = "grep -E '^(Uid|Gid|Groups|CapPrm|CapEff):' /proc/self/status; echo $HOME $USER $LOGNAME";
        let told = said(ids, &user);
        let fields: Vec<&str> = told.split_whitespace().collect();
        let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
        assert_eq!(fields[1..5], [&*uid; 4]);
        assert_eq!(fields[6..10], [&*gid; 4]);
        assert!(told.contains("CapPrm:\t0000000000000000\n"), "{told}");
        assert!(told.ends_with("nobody nobody"), "{told}");
        let groups: Vec<String> = user.groups.iter().map(Gid::to_string).collect();
        assert!(told.contains(&format!("Groups:\t{}", groups.join(" "))), "{told}");
    }

    #[test]
    fn one_without_a_name_keeps_its_ids_alone() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root may be another user");
        }
        let user = User::of(Owner { uid: 4_000_001, gid: 4_000_002 });
        assert_eq!(said("id -u; id -G", &user), "4000001\n4000002");
    }

    #[test]
    fn files_say_who_a_user_is_where_there_is_no_program_to_ask() {
        let users = "root:x:0:0:root:/root:/bin/bash\n+nis\n7:x:8:9::/8:\nann:x:7:70:Ann:/home/ann:/bin/zsh\n";
        let find = |name| Entry::find(users, name).map(|entry| (entry.uid.as_raw(), entry.gid.as_raw(), entry.shell));
        assert_eq!(find("ann"), Some((7, 70, "/bin/zsh")));
        assert_eq!(find("7"), find("ann"), "digits are a number");
        assert_eq!(find("8"), Some((8, 9, "/bin/sh")));
        assert_eq!(find("0"), Some((0, 0, "/bin/bash")));
        assert_eq!(find("an"), None);
        let groups = "root:x:0:\nsee:x:5:bob,ann\nsea:x:6:annabel\nann:x:70:ann\n+\n";
        let ann = Entry::find(users, "ann").unwrap();
        assert_eq!(groups_in(groups, &ann), [70, 5].map(Gid::from_raw));
        assert_eq!(ann.user(Vec::new()).variables[0], ("HOME", "/home/ann".to_owned()));
    }

    #[test]
    fn an_environment_keeps_its_order() {
        let variables = vec![("HOME", "/home/a".to_owned()), ("USER", "a".to_owned())];
        let user = User { uid: Uid::from_raw(1), gid: Gid::from_raw(1), groups: vec![Gid::from_raw(1)], variables };
        let environment = vec![c"HOMER=1".to_owned(), c"HOME=/root".to_owned(), c"B=2".to_owned()];
        assert_eq!(user.adapt(environment), [c"HOMER=1", c"HOME=/home/a", c"B=2", c"USER=a"].map(CStr::to_owned));
    }

    #[test]
    fn a_user_that_there_is_not_is_refused() {
        let refusal = User::named("no such user").unwrap_err().to_string();
        assert_eq!(refusal, "failed to find user `no such user`: the system knows none of that name");
    }
}
