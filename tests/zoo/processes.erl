%% Processes on scheduler threads, exceptions, and zlib.
-module(processes).
-export([main/0]).

main() ->
    io:format("ready ~s~n", [os:getpid()]),
    io:get_line(""),
    Self = self(),
    Workers = [spawn(fun() -> Self ! {N, work(N)} end) || N <- lists:seq(1, 50)],
    Sums = [receive {N, Sum} -> Sum end || N <- lists:seq(1, length(Workers))],
    io:format("~p~n", [lists:sum(Sums)]),
    io:format("truth deflateEnd 500 0~n"),
    halt(0).

work(N) ->
    lists:sum([byte_size(zlib:compress(binary:copy(<<N>>, I * N))) + caught(I) || I <- lists:seq(1, 10)]).

caught(I) ->
    try throw(I) catch throw:I -> I end.
