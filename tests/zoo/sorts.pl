# Exceptions by longjmp, callbacks under sort, and signals.
use strict;
use warnings;
$| = 1;
print "ready $$\n";
my $line = <STDIN>;
my ($caught, $sum) = (0, 0);
for my $i (1 .. 2000) {
    eval { die "x\n" if $i % 2; $sum += $i; };
    $caught++ if $@;
}
my @sorted = sort { eval { die if $a == 7; }; $a <=> $b } map { ($_ * 37) % 101 } 1 .. 200;
print "$caught $sum @sorted[0 .. 3]\n";
