-- Coroutines that call back and forth, errors caught by pcall, strings and tables.
io.write("ready\n")
io.flush()
io.read("*l")

local resumed = 0
local function generator(n)
	return coroutine.create(function()
		for i = 1, n do
			coroutine.yield(string.format("%d", i))
		end
	end)
end

local sum = 0
for round = 1, 100 do
	local co = generator(20)
	while coroutine.status(co) ~= "dead" do
		local _, value = coroutine.resume(co)
		resumed = resumed + 1
		sum = sum + (tonumber(value) or 0)
	end
end
local caught = 0
for i = 1, 1000 do
	if not pcall(error, "x") then
		caught = caught + 1
	end
end
print(resumed .. " " .. sum .. " " .. caught)
-- LuaJIT resumes by assembly of its own.
if not jit then
	print("truth lua_resume " .. resumed .. " 0")
end
