#!/bin/bash
# Records the demo's capture: real programs talk across a router, all of it in network namespaces that this script makes
# and removes. Nothing leaves the machine. Needs root and Debian; takes about half a minute.
#
#   testdata/record-demo.sh [OUT.pcap.zst]        # default: demo.pcap.zst beside this script
#
#   inside 192.168.10.0/24, 2001:db8:1::/64 --- lan [router] wan --- servers  198.51.100.0/24, 2001:db8:2::/64
#                                                           dmz --- attacker 203.0.113.0/24
#
# Recorded at `lan`, so the scan and the flood are seen as they reach the inside. The inside hosts are addresses of one
# namespace. Bulk packets and the flood are cut to 96 bytes, all others are whole.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:-$here/demo.pcap.zst}")
id=mr-$$
work=$(mktemp -d)
chmod 755 "$work"
started=()
declare -A recorder

install_programs() {
    local missing=() pair
    for pair in tshark:tshark mergecap:wireshark-common nginx:nginx-light curl:curl openssl:openssl dig:dnsutils dnsmasq:dnsmasq-base \
        sshd:openssh-server ssh:openssh-client aiosmtpd:python3-aiosmtpd iperf3:iperf3 nmap:nmap hping3:hping3 ping:iputils-ping \
        traceroute:traceroute ethtool:ethtool nft:nftables ip:iproute2 zstd:zstd; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
    [ ${#missing[@]} = 0 ] && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

clean_up() {
    local pid ns
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    for ns in in router servers attacker; do
        # What the programs forked lives in our own namespaces, and in no other.
        for pid in $(ip netns pids "$id-$ns" 2>/dev/null); do kill "$pid" 2>/dev/null || true; done
        ip netns del "$id-$ns" 2>/dev/null || true
        rm -rf "/etc/netns/$id-$ns"
    done
    rmdir /etc/netns 2>/dev/null || true
    rm -rf "$work"
}

# at NAMESPACE HOSTNAME COMMAND...: runs a program there, under a host name that says nothing of this machine.
at() {
    local ns=$1 host=$2
    shift 2
    ip netns exec "$id-$ns" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host" "$@"
}

# serve NAMESPACE HOSTNAME COMMAND...: the same, in the background until the end.
serve() {
    at "$@" >>"$work/servers.log" 2>&1 &
    started+=($!)
}

# link NAMESPACE ROUTER-SIDE MAC-DIGIT: a veth between `eth0` there and the router, without offloads, so that what is
# recorded is what a wire would carry.
link() {
    ip link add name eth0 netns "$id-$1" address "02:00:00:00:0$3:02" type veth peer name "$2" netns "$id-router" address "02:00:00:00:0$3:01"
    ip netns exec "$id-$1" ethtool -K eth0 tx off gro off gso off tso off >/dev/null
    ip netns exec "$id-router" ethtool -K "$2" tx off gro off gso off tso off >/dev/null
    ip -n "$id-$1" link set lo up
    ip -n "$id-$1" link set eth0 up
    ip -n "$id-router" link set "$2" up
}

make_network() {
    local ns host
    for ns in in router servers attacker; do
        ip netns add "$id-$ns"
        ip netns exec "$id-$ns" sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv4.icmp_ratelimit=0
        mkdir -p "/etc/netns/$id-$ns"
        echo "nameserver 198.51.100.53" >"/etc/netns/$id-$ns/resolv.conf"
        echo "127.0.0.1 localhost" >"/etc/netns/$id-$ns/hosts"
    done
    link in lan 1
    link servers wan 2
    link attacker dmz 3
    ip netns exec "$id-router" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1

    ip -n "$id-router" addr add 192.168.10.1/24 dev lan
    ip -n "$id-router" addr add 2001:db8:1::1/64 dev lan nodad
    ip -n "$id-router" addr add 198.51.100.1/24 dev wan
    ip -n "$id-router" addr add 2001:db8:2::1/64 dev wan nodad
    ip -n "$id-router" addr add 203.0.113.1/24 dev dmz
    ip -n "$id-router" route add 203.0.113.128/25 via 203.0.113.66
    # Nobody is there, and nobody says so.
    ip -n "$id-router" route add blackhole 192.0.2.0/24

    for host in 11 12 13 14 15 16 22 80; do
        ip -n "$id-in" addr add "192.168.10.$host/24" dev eth0
        ip -n "$id-in" addr add "2001:db8:1::$host/64" dev eth0 nodad
    done
    ip -n "$id-in" route add default via 192.168.10.1
    ip -n "$id-in" -6 route add default via 2001:db8:1::1

    for host in 10 20 22 25 40 53; do
        ip -n "$id-servers" addr add "198.51.100.$host/24" dev eth0
        ip -n "$id-servers" addr add "2001:db8:2::$host/64" dev eth0 nodad
    done
    ip -n "$id-servers" route add default via 198.51.100.1
    ip -n "$id-servers" -6 route add default via 2001:db8:2::1

    ip -n "$id-attacker" addr add 203.0.113.66/24 dev eth0
    ip -n "$id-attacker" route add default via 203.0.113.1
    # The flood's forged sources: answers to them vanish, as on the real network.
    ip -n "$id-attacker" route add blackhole 203.0.113.128/25

    # A lossy line to the servers: retransmissions are part of real traffic.
    ip netns exec "$id-router" nft "add table inet line; add chain inet line loss { type filter hook forward priority 0; };
        add rule inet line loss iifname { lan, wan } oifname { lan, wan } numgen random mod 400 == 0 drop"
}

start_servers() {
    mkdir -p "$work/www" "$work/ssh" /run/sshd
    seq 1 400 | sed 's/.*/<p>Paragraph & of the example page.<\/p>/' >"$work/www/index.html"
    seq 1 60 | sed 's/.*/p.c& { margin: &px; }/' >"$work/www/style.css"
    head -c 60000 /dev/urandom >"$work/www/picture.jpg"
    head -c 3000000 /dev/zero >"$work/www/image.iso"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=www.example.net \
        -keyout "$work/tls.key" -out "$work/tls.crt" 2>/dev/null
    cat >"$work/nginx.conf" <<CONF
daemon off; pid $work/nginx-\${SIDE}.pid; error_log $work/nginx.log; worker_processes 1;
events {}
http {
    access_log off;
    types { text/html html; text/css css; image/jpeg jpg; }
    server { listen 80; listen [::]:80; root $work/www; }
    server { listen 443 ssl; listen [::]:443 ssl; root $work/www; ssl_certificate $work/tls.crt; ssl_certificate_key $work/tls.key; }
}
CONF
    sed 's/${SIDE}/out/' "$work/nginx.conf" >"$work/nginx-out.conf"
    sed 's/${SIDE}/in/' "$work/nginx.conf" >"$work/nginx-in.conf"
    serve servers www.example.net nginx -c "$work/nginx-out.conf"
    serve in intranet.example.net nginx -c "$work/nginx-in.conf"

    serve servers ns.example.net dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --port=53 --user=root \
        --listen-address=198.51.100.53,2001:db8:2::53 --bind-interfaces --local=/example.net/ \
        --host-record=www.example.net,198.51.100.10,2001:db8:2::10 --host-record=shop.example.net,198.51.100.20,2001:db8:2::20 \
        --host-record=mail.example.net,198.51.100.25 --host-record=git.example.net,198.51.100.22 \
        --mx-host=example.net,mail.example.net,10 --txt-record=example.net,"v=spf1 mx -all"
    serve servers mail.example.net aiosmtpd -n -l 198.51.100.25:25 -c aiosmtpd.handlers.Sink

    ssh-keygen -q -t ed25519 -N '' -C host -f "$work/ssh/host"
    ssh-keygen -q -t ed25519 -N '' -C user -f "$work/ssh/user"
    cp "$work/ssh/user.pub" "$work/ssh/authorized"
    printf '%s\n' "HostKey $work/ssh/host" "AuthorizedKeysFile $work/ssh/authorized" 'StrictModes no' 'UsePAM no' \
        'PermitRootLogin yes' "PidFile $work/ssh/pid" 'PrintMotd no' 'Subsystem sftp internal-sftp' >"$work/ssh/config"
    serve servers git.example.net /usr/sbin/sshd -D -e -f "$work/ssh/config"
    serve servers bulk.example.net iperf3 --server --bind 198.51.100.40
    wait_for servers 80 443 53 25 22 5201
    wait_for in 80
}

# wait_for NAMESPACE PORT...: until somebody listens on each, at most ten seconds.
wait_for() {
    local ns=$1 port tries
    shift
    for port in "$@"; do
        for tries in $(seq 100); do
            [ -n "$(ip netns exec "$id-$ns" ss -Hltn "sport = :$port")" ] && continue 2
            sleep 0.1
        done
        echo "nobody listens on port $port" >&2
        cat "$work/servers.log" >&2
        return 1
    done
}

bulk='port 5201 or (tcp port 80 and host 198.51.100.20) or (net 203.0.113.128/25)'

record() {
    local name=$1
    shift
    ip netns exec "$id-router" dumpcap -q -i lan -B 64 -P "$@" -w "$work/$name.pcap" 2>"$work/$name.log" &
    started+=($!)
    recorder[$name]=$!
    local tries
    for tries in $(seq 100); do
        grep -q '^File:' "$work/$name.log" && return
        sleep 0.1
    done
    cat "$work/$name.log" >&2
    return 1
}

client() { at in "pc$1.example.net" "${@:2}" >/dev/null 2>>"$work/clients.log" || true; }

web() {
    local round host
    for round in $(seq 12); do
        sleep 0.4
        for host in 11 12 13 14 15; do
            client $host curl -s -m 20 --interface 192.168.10.$host http://www.example.net/index.html \
                http://www.example.net/style.css http://www.example.net/picture.jpg
        done
        client 11 curl -s -m 20 -6 --interface 2001:db8:1::11 http://www.example.net/index.html
        # Hangs up in the middle of an answer.
        client 12 curl -s -m 20 --max-filesize 100 --interface 192.168.10.12 http://www.example.net/picture.jpg
        client 12 curl -s -m 0.02 --interface 192.168.10.12 http://www.example.net/picture.jpg
    done
    # Refused, and never answered.
    client 13 curl -s -m 3 --interface 192.168.10.13 http://198.51.100.10:81/
    client 13 curl -s -m 8 --interface 192.168.10.13 http://192.0.2.1/
}

tls() {
    local round host
    for round in $(seq 8); do
        sleep 0.7
        for host in 11 13 14 15; do
            client $host curl -sk -m 20 --interface 192.168.10.$host https://shop.example.net/style.css https://shop.example.net/index.html
        done
        client 12 curl -sk -m 20 -6 --interface 2001:db8:1::12 https://www.example.net/style.css
        client 16 curl -sk -m 20 --tls-max 1.2 --interface 192.168.10.16 https://www.example.net/style.css
        client 16 sh -c 'printf "GET /style.css HTTP/1.0\r\n\r\n" | timeout 10 openssl s_client -connect 198.51.100.10:443 -servername www.example.net'
    done
}

dns() {
    local round name
    for round in $(seq 12); do
        sleep 0.5
        for name in www shop mail git "missing$round"; do
            client 14 dig +tries=1 +time=2 -b 192.168.10.14 @198.51.100.53 $name.example.net A $name.example.net AAAA
        done
        client 15 dig +tries=1 +time=2 -6 -b 2001:db8:1::15 @2001:db8:2::53 example.net MX
        client 15 dig +tries=1 +time=2 +tcp -b 192.168.10.15 @198.51.100.53 example.net TXT
    done
    # No name server there: port unreachable, of both families.
    client 14 dig +tries=2 +time=1 -b 192.168.10.14 -p 5999 @198.51.100.10 www.example.net
    client 14 dig +tries=2 +time=1 -b 2001:db8:1::14 -p 5999 @2001:db8:2::10 www.example.net
}

mail() {
    local number
    for number in $(seq 10); do
        sleep 0.5
        printf 'From: <ann@example.net>\r\nTo: <bob@example.net>\r\nSubject: report %s\r\n\r\nNothing to report.\r\n' "$number" |
            at in pc16.example.net curl -s -m 20 --interface 192.168.10.16 smtp://198.51.100.25/pc16.example.net \
                --mail-from ann@example.net --mail-rcpt bob@example.net --upload-file - >/dev/null || true
    done
}

shell() {
    local round options=(-q -F none -i "$work/ssh/user" -b 192.168.10.22 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=10)
    for round in 1 2 3 4; do
        client 22 timeout 20 ssh "${options[@]}" root@198.51.100.22 'uptime; sleep 0.3; seq 200; sleep 0.5; date'
    done
    client 22 timeout 20 ssh "${options[@]}" root@198.51.100.22 "cat $work/www/picture.jpg"
}

probes() {
    client 11 ping -c 12 -i 0.3 -I 192.168.10.11 198.51.100.10
    client 12 ping -6 -c 8 -i 0.3 -I 2001:db8:1::12 2001:db8:2::10
    client 13 traceroute -n -w 1 -q 2 -s 192.168.10.13 198.51.100.20
    client 13 ping -c 2 -i 0.3 -t 1 -I 192.168.10.13 198.51.100.20
}

transfers() {
    sleep 1
    client 15 curl -s -m 30 --interface 192.168.10.15 http://198.51.100.20/image.iso
    client 14 timeout 30 iperf3 -c 198.51.100.40 -B 192.168.10.14 -n 4M
    client 14 timeout 30 iperf3 -c 198.51.100.40 -B 192.168.10.14 -n 4M -R
    client 16 timeout 30 iperf3 -c 198.51.100.40 -B 192.168.10.16 -u -b 4M -l 1200 -t 2
}

attacks() {
    sleep 2
    at attacker scanner timeout 40 nmap -n -Pn -sS -T4 --max-retries 1 -p 1-1000 192.168.10.80 >/dev/null || true
    local source
    for source in $(seq 129 250); do
        at attacker flooder timeout 10 hping3 -q -n -S -p 80 -c 40 -i u200 -a 203.0.113.$source 192.168.10.80 >/dev/null 2>&1 || true &
        [ $((source % 8)) = 0 ] && wait_jobs 8
    done
    wait
}

# wait_jobs N: waits until fewer than N background jobs of this shell are left.
wait_jobs() { while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do wait -n || true; done; }

install_programs
trap clean_up EXIT
PATH=$PATH:/usr/sbin:/sbin
make_network
start_servers
record whole -s 0 -f "not ($bulk)"
record bulk -s 96 -f "$bulk"

loads=()
for load in web tls dns mail shell probes transfers attacks; do
    $load &
    loads+=($!)
done
wait "${loads[@]}"
sleep 1

for name in whole bulk; do
    kill -INT "${recorder[$name]}"
    wait "${recorder[$name]}" || true
    cat "$work/$name.log" >&2
done
mergecap -F pcap -w "$work/merged.pcap" "$work/whole.pcap" "$work/bulk.pcap"
reordercap "$work/merged.pcap" "$work/demo.pcap" >&2
zstd -q -f -19 "$work/demo.pcap" -o "$out"
ls -l "$out" >&2
