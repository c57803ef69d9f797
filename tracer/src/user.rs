//! Users as whom rtrace, run by root, starts programs: the command of `run`, sinks and metric plug-ins.
//!
//! Such a program gets nothing of root's: user and group ids, all supplementary groups, and the variables of the
//! environment that name the user are another's before it is executed.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{fmt, io, ptr};

use rtrace_bpf::Observer;
use rtrace_exporters::Owner;

/// Most bytes of an entry of the user database that are looked at.
const ENTRY_BYTES: usize = 1 << 16;

/// Most groups of a user, as the kernel has it.
const MOST_GROUPS: i32 = 1 << 16;

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
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
        let entry = match name.parse() {
            Ok(uid) => Entry::of_id(uid),
            Err(_) => CString::new(name).ok().and_then(|name| Entry::of_name(&name)),
        };
        let user = entry.ok_or_else(|| Error::Unknown(name.to_owned()))?.user();
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if own.0 != 0 && own != (user.uid, user.gid) {
            return Err(Error::NotRoot(name.to_owned()));
        }
        Ok(user)
    }

    /// The user of these ids, whether the system has a name for it or not.
    pub fn of(owner: Owner) -> User {
        let known = Entry::of_id(owner.uid).map(Entry::user).filter(|user| user.gid == owner.gid);
        known.unwrap_or(User { uid: owner.uid, gid: owner.gid, groups: vec![owner.gid], variables: Vec::new() })
    }

    /// Who may look at what this user runs.
    pub fn observer(&self) -> Observer {
        Observer { user: self.uid, group: self.gid, capabilities: 0 }
    }

    /// Lets a command be executed as this user.
    pub fn run(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let user = self.clone();
        let is_root = rustix::process::geteuid().is_root();
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
        let done = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: the list lives through the call, and the other calls take numbers.
        unsafe {
            done(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            done(libc::setresgid(self.gid, self.gid, self.gid))?;
            done(libc::setresuid(self.uid, self.uid, self.uid))
        }
    }
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

/// What the system knows of a user.
struct Entry {
    uid: u32,
    gid: u32,
    name: CString,
    home: CString,
    shell: CString,
}

impl Entry {
    fn of_name(name: &CStr) -> Option<Entry> {
        // SAFETY: all pointers live through the call, and the length is the buffer's.
        Entry::read(|entry, buffer, length, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), entry, buffer, length, found)
        })
    }

    fn of_id(uid: u32) -> Option<Entry> {
        // SAFETY: as above.
        Entry::read(|entry, buffer, length, found| unsafe { libc::getpwuid_r(uid, entry, buffer, length, found) })
    }

    fn read(
        look_up: impl FnOnce(*mut libc::passwd, *mut c_char, usize, *mut *mut libc::passwd) -> i32,
    ) -> Option<Entry> {
        let (mut entry, mut found) = (MaybeUninit::<libc::passwd>::uninit(), ptr::null_mut());
        let mut buffer = vec![0; ENTRY_BYTES];
        let failed = look_up(entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found);
        if failed != 0 || found.is_null() {
            return None;
        }
        // SAFETY: what was found is the entry, whose strings end in null and lie in the buffer.
        let (entry, text) = unsafe {
            let text = |string: *mut c_char| CStr::from_ptr(string).to_owned();
            (entry.assume_init(), text)
        };
        Some(Entry {
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            name: text(entry.pw_name),
            home: text(entry.pw_dir),
            shell: text(entry.pw_shell),
        })
    }

    fn user(self) -> User {
        let text = |string: &CString| string.to_string_lossy().into_owned();
        let shell = Some(text(&self.shell)).filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".to_owned());
        let variables = vec![
            ("HOME", text(&self.home)),
            ("USER", text(&self.name)),
            ("LOGNAME", text(&self.name)),
            ("SHELL", shell),
        ];
        User { uid: self.uid, gid: self.gid, groups: groups(&self.name, self.gid), variables }
    }
}

/// All groups of a user, with its own.
fn groups(name: &CStr, gid: u32) -> Vec<u32> {
    let mut count = 64;
    loop {
        let mut groups = vec![0; usize::try_from(count).unwrap_or_default()];
        // SAFETY: both pointers live through the call, and the count is that of the list.
        let filled = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if let Ok(filled) = usize::try_from(filled) {
            groups.truncate(filled);
            return groups;
        }
        if count > MOST_GROUPS || usize::try_from(count).is_ok_and(|count| count <= groups.len()) {
            return vec![gid];
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

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
        let groups: Vec<String> = user.groups.iter().map(u32::to_string).collect();
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
    fn an_environment_keeps_its_order() {
        let variables = vec![("HOME", "/home/a".to_owned()), ("USER", "a".to_owned())];
        let user = User { uid: 1, gid: 1, groups: vec![1], variables };
        let environment = vec![c"HOMER=1".to_owned(), c"HOME=/root".to_owned(), c"B=2".to_owned()];
        assert_eq!(user.adapt(environment), [c"HOMER=1", c"HOME=/home/a", c"B=2", c"USER=a"].map(CStr::to_owned));
    }

    #[test]
    fn a_user_that_there_is_not_is_refused() {
        let refusal = User::named("no such user").unwrap_err().to_string();
        assert_eq!(refusal, "failed to find user `no such user`: the system knows none of that name");
    }
}
