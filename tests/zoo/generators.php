<?php
// Generators, fibers, exceptions and zlib.
echo "ready ", getmypid(), "\n";
fgets(STDIN);

$sum = 0;
for ($round = 0; $round < 50; $round++) {
    $fiber = new Fiber(function () {
        for ($i = 0; $i < 20; $i++) {
            Fiber::suspend(crc32((string)$i));
        }
    });
    $value = $fiber->start();
    while (!$fiber->isTerminated()) {
        $sum = ($sum + $value) % 1000003;
        $value = $fiber->resume();
    }
}
$caught = 0;
for ($i = 0; $i < 300; $i++) {
    try {
        intdiv(1, $i % 2);
    } catch (DivisionByZeroError $error) {
        $caught++;
    }
    $sum += strlen(gzcompress(str_repeat("x", $i)));
}
echo "$sum $caught\n";
echo "truth deflateEnd 300 0\n";
