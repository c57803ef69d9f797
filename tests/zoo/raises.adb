--  Exceptions of Ada that leave calls, and tasks.
with Ada.Text_IO; use Ada.Text_IO;

procedure Raises is
   Wrong  : exception;
   Caught : Natural := 0;
   Line   : String (1 .. 80);
   Last   : Natural;

   procedure Fail (N : Natural) with No_Inline;
   procedure Fail (N : Natural) is
   begin
      if N mod 2 = 1 then
         raise Wrong;
      end if;
   end Fail;
begin
   Put_Line ("ready");
   Get_Line (Line, Last);
   for N in 1 .. 1000 loop
      begin
         Fail (N);
      exception
         when Wrong => Caught := Caught + 1;
      end;
   end loop;
   Put_Line (Natural'Image (Caught));
end Raises;
