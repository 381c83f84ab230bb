#!/usr/bin/env python3
"""Asks the running kernel's connection tracker what it makes of TCP scenarios (the format of tcp.scenarios).

    unshare -n python3 kernel_oracle.py check tcp.scenarios        # prints where the kernel differs
    unshare -n python3 kernel_oracle.py random 7 400 > tcp.kernel  # random scenarios with the kernel's answers

Needs root, nft, /dev/net/tun and /proc/net/nf_conntrack. Packets go in by one tun device and, unless the tracker
calls them invalid, come out by another; the state is read from /proc.
"""

import fcntl, os, random, re, select, socket, struct, subprocess, sys, time

CLIENT, SERVER = "10.0.0.1", "10.0.0.2"
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16, "U": 32, "E": 64, "C": 128}
SYSCTL = {
    "loose": "nf_conntrack_tcp_loose",
    "liberal": "nf_conntrack_tcp_be_liberal",
    "ignore_invalid_rst": "nf_conntrack_tcp_ignore_invalid_rst",
}


def run(command):
    subprocess.run(command, shell=True, check=True)


def sysctl(name, value):
    with open(f"/proc/sys/net/{name}", "w") as f:
        f.write(str(value))


def tun(name, peer):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH", name.encode(), 0x0001 | 0x1000))
    run(f"ip link set {name} up && ip route add {peer} dev {name}")
    return fd


def set_up():
    run("ip link set lo up")
    devices = tun("client", CLIENT), tun("server", SERVER)
    sysctl("ipv4/ip_forward", 1)
    for device in ("all", "client", "server"):
        sysctl(f"ipv4/conf/{device}/rp_filter", 0)
    run("nft add table ip t && nft add chain ip t f '{ type filter hook forward priority 0; }'"
        " && nft add rule ip t f ct state invalid drop")
    return devices


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(port, line):
    options = b""
    if line["ws"] is not None:
        options += struct.pack("BBBB", 1, 3, 3, line["ws"])
    if line["sackok"]:
        options += struct.pack("BBBB", 1, 1, 4, 2)
    if line["sack"] is not None:
        options += struct.pack("!BBBBII", 1, 1, 5, 10, (line["sack"] - 1) % 2**32, line["sack"])
    # A header without options leaves the kernel's last word on them standing; an end of options does not.
    if not options:
        options = struct.pack("BBBB", 1, 1, 1, 0)
    source, target = (CLIENT, SERVER) if line["client"] else (SERVER, CLIENT)
    ports = (port, 80) if line["client"] else (80, port)
    offset = (20 + len(options)) // 4 << 4
    tcp = struct.pack("!HHIIBBHHH", *ports, line["seq"], line["ack"], offset, line["flags"], line["win"], 0, 0)
    body = tcp + options + bytes(line["len"])
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack("!BBH", 0, 6, len(body))
    body = body[:16] + struct.pack("!H", checksum(pseudo + body)) + body[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, 6, 0)
    ip += socket.inet_aton(source) + socket.inet_aton(target)
    return ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + body


def ask(devices, port, line):
    """Gives the packet to the kernel; what became of it, in the words of a scenario."""
    into, out = devices if line["client"] else devices[::-1]
    while select.select(devices, [], [], 0)[0]:
        for device in select.select(devices, [], [], 0)[0]:
            os.read(device, 65536)
    sent = packet(port, line)
    os.write(into, sent)
    passed = False
    while not passed and select.select([out], [], [], 0.03)[0]:
        passed = os.read(out, 65536)[20:] == sent[20:]
    words = [] if passed else ["!"]
    # /proc rounds down: a tick later that is always one second less.
    time.sleep(0.012)
    with open("/proc/net/nf_conntrack") as f:
        entry = next((e for e in f if re.search(rf"(sport|dport)={port} ", e)), None)
    if entry is None:
        return words + ["gone"]
    fields = entry.split()
    words += [fields[5].lower().replace("_", "-"), str(int(fields[4]) + 1)]
    return words + (["assured"] if "[ASSURED]" in entry else [])


def parse(text):
    text, _, expected = text.partition("->")
    words = text.split()
    line = {"wait": 0.0, "seq": 0, "ack": 0, "len": 0, "win": 1000, "ws": None, "sackok": False, "sack": None}
    if words[0].startswith("+"):
        line["wait"] = float(words.pop(0)[1:])
    line["client"] = words.pop(0) == ">"
    line["flags"] = sum(FLAGS[letter] for letter in words.pop(0).replace("none", ""))
    for word in words:
        name, _, value = word.partition("=")
        line[name] = True if name == "sackok" else int(value)
    return line, expected.split()


def check(devices, path):
    differences = scenarios = 0
    port, name, skip = 20000, "", False
    for text in open(path):
        text = text.strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("="):
            name, _, config = text[1:].partition("|")
            wanted = dict(pair.split("=") for pair in config.split())
            for key, sysctl_name in SYSCTL.items():
                value = wanted.get(key, "true" if key == "loose" else "false")
                sysctl(f"netfilter/{sysctl_name}", int(value == "true"))
            port, skip, scenarios = port + 1, False, scenarios + 1
            continue
        line, expected = parse(text)
        if skip or line["wait"] > 6:
            skip = True
            continue
        time.sleep(line["wait"])
        expected = ["!" if word.startswith("!") else word for word in expected]
        found = ask(devices, port, line)
        if found != expected:
            differences += 1
            print(f"{name.strip()}: {text}\n    kernel: {' '.join(found)}")
    print(f"{scenarios} scenarios, {differences} differences")


def shift(rng):
    return rng.choices(
        [0, rng.choice([-1, 1]), rng.choice([-100, 100, 300]), rng.choice([-1500, 1000, 2000]),
         rng.choice([-70000, 70000]), rng.randrange(2**32)], [70, 7, 9, 8, 3, 3])[0]


def random_scenarios(devices, seed, count):
    rng = random.Random(seed)
    print(f"# Random scenarios with the answers of Linux {os.uname().release.split('-')[0]}: kernel_oracle.py random {seed} {count}.")
    for number in range(count):
        print(f"= random {number}")
        nxt = {True: rng.choice([1000, 2**32 - 500, rng.randrange(2**32)]), False: rng.choice([5000, rng.randrange(2**32)])}
        scaled, sack, stage = rng.random() < 0.4, rng.random() < 0.5, 0
        if rng.random() < 0.15:
            stage = 3
        for _ in range(rng.randrange(6, 18)):
            client = rng.random() < 0.5
            # Mostly the next step of a handshake, then data and acknowledgements, then the end.
            if stage < 3 and rng.random() < 0.85:
                client, kind = [(True, "S"), (False, "SA"), (True, "A")][stage]
                stage += 1
            else:
                kind = rng.choices(["A", "PA", "FA", "S", "SA", "R", "RA", "F"], [30, 25, 14, 8, 6, 7, 6, 1])[0]
            words = [">" if client else "<", kind]
            moved = shift(rng)
            seq = (nxt[client] + moved) % 2**32
            length = rng.choice([1, 100, 1000, 1400]) if "P" in kind else 0
            if kind[0] == "R" and rng.random() < 0.2:
                seq = 0
            words.append(f"seq={seq}")
            if "A" in kind or rng.random() < 0.2:
                words.append(f"ack={(nxt[not client] + shift(rng)) % 2**32}")
            if length:
                words.append(f"len={length}")
            if rng.random() < 0.5:
                words.append(f"win={rng.choice([0, 1, 200, 4000, 65535])}")
            if "S" in kind and scaled and rng.random() < 0.9:
                words.append(f"ws={rng.choice([0, 2, 7, 14])}")
            if "S" in kind and sack and rng.random() < 0.9:
                words.append("sackok")
            if "S" not in kind and sack and rng.random() < 0.3:
                words.append(f"sack={(nxt[not client] + shift(rng)) % 2**32}")
            if moved == 0 or rng.random() < 0.3:
                nxt[client] = (seq + length + ("S" in kind) + ("F" in kind)) % 2**32
            if "S" in kind and "A" not in kind and stage >= 3:
                stage = 1
            text = " ".join(words)
            line, _ = parse(text)
            print(f"{text} -> {' '.join(ask(devices, 20001 + number, line))}")


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(set_up(), sys.argv[2])
    else:
        random_scenarios(set_up(), int(sys.argv[2]), int(sys.argv[3]))
