# php-fpm with one worker, which answers requests when a line comes. With `master` that process is the one to trace.
set -eu
cat > fpm.conf <<EOF
[global]
error_log = $PWD/fpm.log
daemonize = no
[www]
user = nobody
group = nogroup
listen = $PWD/fpm.sock
listen.mode = 0666
pm = static
pm.max_children = 1
EOF
cat > page.php <<'EOF'
<?php
$sum = 0;
for ($i = 0; $i < 10; $i++) $sum += strlen(gzcompress(str_repeat("x", $i * (int)$_GET["n"])));
echo $sum, "\n";
EOF
chmod 755 . ; rm -f fpm.sock
/usr/sbin/php-fpm8.2 --nodaemonize --fpm-config fpm.conf -n < /dev/null > fpm.out 2>&1 &
master=$!
until [ -S fpm.sock ] && worker=$(pgrep -P "$master"); do sleep 0.05; done
[ "${1:-}" = master ] && worker=$master
echo "ready $worker"
read -r line
for n in 1 2 3 4 5 6 7 8 9 10; do
	SCRIPT_FILENAME=$PWD/page.php REQUEST_METHOD=GET QUERY_STRING=n=$n cgi-fcgi -bind -connect fpm.sock | tail -1
done
kill -QUIT "$master"
wait "$master" || echo "php-fpm ended with $?"
echo "truth deflateEnd 100 0"
