(* SPDX-License-Identifier: Apache-2.0 OR MIT
   Exceptions without an unwinder: OCaml cuts the stack back. *)
let calls = ref 0
let[@inline never] find x = incr calls; if x >= 0 then raise Not_found else x

let () =
  let missed = ref 0 in
  Printf.printf "ready %d\n%!" (Unix.getpid ());
  ignore (read_line ());
  for i = 1 to 1000 do
    try ignore (Sys.opaque_identity (find i)) with Not_found -> incr missed
  done;
  Printf.printf "%d missed\n%!" !missed;
  (* What the compiler calls it has a number. *)
  if Array.length Sys.argv > 1 then Printf.printf "truth %s %d %d\n%!" Sys.argv.(1) !calls !missed;
  exit 13
