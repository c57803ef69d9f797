//! Servers on loopback with configurations of their own, and clients that check each answer.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::running::Running;
use crate::{files, process};

/// Between two rounds of requests: the load is bounded.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest time until a server answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a server is, by shell scripts in its folder that find its port in `$PORT`.
pub struct ServerKind {
    pub name: &'static str,
    /// Writes what the others need.
    setup: &'static str,
    /// Becomes the server.
    serve: &'static str,
    /// Requests whose answers it checks: it counts them in `n` and those that were answered rightly in `good`.
    round: &'static str,
    /// Fails where the server has got something wrong over all.
    check: &'static str,
}

pub const KINDS: [ServerKind; 4] = [
    ServerKind {
        name: "redis",
        setup: r#"
            for i in $(seq 100); do echo "SET key$i value$i"; echo "GET key$i"; done > requests
            for i in $(seq 100); do echo OK; echo "value$i"; done > answers
        "#,
        // It forks now and then, to save what it has.
        serve: r#"exec redis-server --port 0 --tls-port "$PORT" --bind 127.0.0.1 --tls-cert-file cert.pem
            --tls-key-file key.pem --tls-auth-clients no --save "5 1" --dir "$PWD" --daemonize no"#,
        round: r#"
            n=200
            timeout 60 redis-cli -p "$PORT" --tls --insecure < requests > got || true
            good=$(paste -d ' ' got answers | awk '$1 == $2' | wc -l)
        "#,
        check: "",
    },
    ServerKind {
        name: "nginx",
        setup: r#"
            mkdir -p www temp
            base64 -w 100 < /usr/bin/openssl | head -c 100000 > www/page
            cat > nginx.conf <<-END
            user root; worker_processes 2; pid $PWD/pid; error_log $PWD/errors;
            events { worker_connections 128; }
            http {
                access_log off; client_body_temp_path $PWD/temp/a; proxy_temp_path $PWD/temp/b;
                fastcgi_temp_path $PWD/temp/c; uwsgi_temp_path $PWD/temp/d; scgi_temp_path $PWD/temp/e;
                server {
                    listen 127.0.0.1:$PORT ssl; root $PWD/www;
                    ssl_certificate $PWD/cert.pem; ssl_certificate_key $PWD/key.pem;
                }
            }
            END
        "#,
        serve: r#"exec /usr/sbin/nginx -e "$PWD/errors" -c "$PWD/nginx.conf" -g 'daemon off;'"#,
        round: r#"
            n=20 good=0
            for connection in 1 2 3 4; do
                rm -f got.*
                curl -sSf -k -m 60 "https://127.0.0.1:$PORT/page?[1-5]" -o 'got.#1' || true
                for got in got.*; do if cmp -s "$got" www/page; then good=$((good + 1)); fi; done
            done
        "#,
        check: "",
    },
    ServerKind {
        name: "postgresql",
        setup: r#"
            chown -R postgres:postgres .
            setpriv --reuid postgres --regid postgres --clear-groups \
                "$(ls -d /usr/lib/postgresql/*/bin | tail -1)/initdb" -D data -A trust --no-sync > /dev/null
            install -o postgres -m 600 cert.pem key.pem data/
        "#,
        serve: r#"exec setpriv --pdeathsig INT --reuid postgres --regid postgres --clear-groups
            "$(ls -d /usr/lib/postgresql/*/bin | tail -1)/postgres" -D data -p "$PORT" -c listen_addresses=127.0.0.1
            -c unix_socket_directories= -c ssl=on -c ssl_cert_file=cert.pem -c ssl_key_file=key.pem"#,
        round: r#"
            export PGHOST=127.0.0.1 PGPORT=$PORT PGUSER=postgres PGSSLMODE=require PGCONNECT_TIMEOUT=60
            [ -e filled ] || { pgbench -i -q postgres 2> /dev/null && touch filled; }
            n=60
            good=$(timeout 120 pgbench -n -c 4 -t 15 -R 100 postgres 2>> errors |
                sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p')
        "#,
        // Each transaction adds the same to an account, a teller, a branch and the history.
        check: r#"
            psql -h 127.0.0.1 -p "$PORT" -U postgres -Atc "SELECT (SELECT sum(abalance) FROM pgbench_accounts) =
                (SELECT sum(tbalance) FROM pgbench_tellers) AND (SELECT sum(bbalance) FROM pgbench_branches) =
                (SELECT sum(delta) FROM pgbench_history)" | grep -qx t
        "#,
    },
    ServerKind {
        name: "sshd",
        setup: r#"
            mkdir -p /run/sshd
            ssh-keygen -q -t ed25519 -N '' -f host
            ssh-keygen -q -t ed25519 -N '' -f user
            base64 -w 100 < /usr/bin/openssl | head -c 100000 > page
            cat > config <<-END
            Port $PORT
            ListenAddress 127.0.0.1
            HostKey $PWD/host
            AuthorizedKeysFile $PWD/user.pub
            PidFile $PWD/pid
            PermitRootLogin yes
            PasswordAuthentication no
            StrictModes no
            UsePAM no
            LoginGraceTime 0
            END
        "#,
        serve: r#"exec /usr/sbin/sshd -D -e -f "$PWD/config""#,
        round: r#"
            n=3 good=0
            for connection in 1 2 3; do
                if timeout 60 ssh -F none -i user -p "$PORT" -o BatchMode=yes -o StrictHostKeyChecking=no \
                    -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR root@127.0.0.1 "cat $PWD/page" 2>> errors |
                    cmp -s - page; then good=$((good + 1)); fi
            done
        "#,
        check: "",
    },
];

/// A certificate that the clients do not check.
const CERTIFICATE: &str =
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=soak -keyout key.pem -out cert.pem 2> /dev/null";

/// A server that runs.
pub struct SoakServer {
    pub client: Client,
    running: Running,
}

/// Who makes requests of a server.
pub struct Client {
    pub kind: &'static ServerKind,
    folder: PathBuf,
    port: u16,
}

/// Requests that were made.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    pub made: u64,
    pub failed: u64,
}

impl SoakServer {
    /// Starts it in a folder that it makes, and waits until it answers.
    pub fn start(kind: &'static ServerKind, folder: PathBuf) -> Result<SoakServer> {
        let folder = files::folder(folder)?;
        let free = TcpListener::bind(("127.0.0.1", 0)).context("failed to find a port")?;
        let port = free.local_addr().context("failed to find a port")?.port();
        drop(free);
        let client = Client { kind, folder, port };
        process::output(&mut client.shell(CERTIFICATE))?;
        process::output(&mut client.shell(kind.setup))?;
        let log = fs::File::create(client.folder.join("log")).context("failed to create the log of a server")?;
        let mut serve = client.shell(&kind.serve.replace('\n', " "));
        let running = Running::listen(serve.stderr(log), |child| child.stdout.take())?;
        let begin = Instant::now();
        while client.round().map_or(true, |Requests { made, failed }| made == 0 || failed > 0) {
            if begin.elapsed() > PATIENCE {
                bail!("failed to get an answer from {}: see `{}`", kind.name, client.folder.display());
            }
            sleep(PAUSE);
        }
        Ok(SoakServer { client, running })
    }

    /// The process that was started.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Ends it.
    pub fn end(self) -> Result<()> {
        self.running.terminate();
        self.running.end().map(drop)
    }
}

impl Client {
    /// Makes requests until it is to end.
    pub fn load(&self, ends: &AtomicBool, requests: &Mutex<Requests>) {
        while !ends.load(Relaxed) {
            // A round that tells nothing is a request that was not answered.
            let Requests { made, failed } = self.round().unwrap_or(Requests { made: 1, failed: 1 });
            if failed > 0 {
                eprintln!("{}: {failed} of {made} requests failed", self.kind.name);
            }
            let mut requests = requests.lock().expect("nothing panics meanwhile");
            requests.made += made;
            requests.failed += failed;
            drop(requests);
            sleep(PAUSE);
        }
    }

    /// Whether it has got all right, over all.
    pub fn is_right(&self) -> bool {
        process::output(&mut self.shell(self.kind.check)).is_ok()
    }

    fn round(&self) -> Result<Requests> {
        let script = format!("{}\necho \"$n ${{good:-0}}\"", self.kind.round);
        let told = process::output(&mut self.shell(&script))?;
        let (made, good) = told.trim().rsplit_once(' ').context("failed to understand a round of requests")?;
        let (made, good): (u64, u64) = (made.parse()?, good.parse()?);
        Ok(Requests { made, failed: made.saturating_sub(good) })
    }

    /// A shell in the folder.
    fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("bash");
        let script = script.lines().map(|line| line.trim_start().to_owned() + "\n").collect::<String>();
        shell.args(["-euc", &script]).current_dir(&self.folder).env("PORT", self.port.to_string()).stdin(Stdio::null());
        shell
    }
}
