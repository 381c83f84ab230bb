// The parser: reads the first 256 bytes of each packet, which come in one or two beats, as crates/packet reads frames, and
// says what records are made of. A packet a cycle; what it says comes a fixed number of cycles behind the packet's first
// or second beat, in the order of packets, and never waits.
//
// It reads Ethernet with up to two VLAN tags, IPv4 with options, IPv6, TCP with options, UDP, ICMP, SCTP, GRE as far as
// crates/packet checks it. `software` says that the packet has what only software reads: another link type, a third tag,
// MPLS, PPPoE, IPv6 extension headers. `bad` says that the headers can't be trusted.
module headers (
    input  wire          clk,
    input  wire          rst,
    // Beats as they are taken in. `interface`, `link` and `wire_len` count with the first.
    input  wire          beat,
    input  wire          first,
    input  wire          last,
    input  wire [1023:0] data,
    input  wire [127:0]  keep,
    input  wire [15:0]   in_interface,
    input  wire [15:0]   in_link,
    input  wire [31:0]   in_wire_len,

    output wire          valid,
    output wire          bad,
    output wire          software,
    output wire          v4,
    output wire          v6,
    output wire          later,       // a later fragment
    output wire [127:0]  src,         // IPv4 addresses stand in the low 32 bits
    output wire [127:0]  dst,
    output wire [7:0]    protocol,
    output wire          tcp,
    output wire          udp,
    output wire          icmp,
    output wire          sctp,
    output wire [15:0]   src_port,    // of ICMP queries, the identifier
    output wire [15:0]   dst_port,
    output wire [7:0]    icmp_type,
    output wire          icmp_query,
    output wire [7:0]    flags,
    output wire [31:0]   seq,
    output wire [31:0]   ack,
    output wire [15:0]   window,
    output wire [31:0]   payload_len,
    output wire          has_scale,
    output wire [3:0]    scale,
    output wire          sack_permitted,
    output wire          has_edge,
    output wire [31:0]   edge_offset, // the selective acknowledgement's right edge, counted on from `ack`
    output wire [15:0]   interface_id,
    output wire [31:0]   wire_len
);
`define BYTE(v, at) v[8*(at) +: 8]
`define HALF(v, at) {v[8*(at) +: 8], v[8*(at)+8 +: 8]}
`define WORD(v, at) {v[8*(at) +: 8], v[8*(at)+8 +: 8], v[8*(at)+16 +: 8], v[8*(at)+24 +: 8]}

    // ---- The first 256 bytes.
    function [7:0] bytes_of(input [127:0] k);
        integer i;
        begin
            bytes_of = 0;
            for (i = 0; i < 128; i = i + 1) if (k[i]) bytes_of = i[7:0] + 8'd1;
        end
    endfunction

    reg          w_valid, w_waits;
    reg [2047:0] w;
    reg [8:0]    w_cap;
    reg [15:0]   w_interface, w_link;
    reg [31:0]   w_wire_len;
    always @(posedge clk) begin
        w_valid <= 1'b0;
        if (beat && first) begin
            w[1023:0] <= data;
            w_cap <= {1'b0, bytes_of(keep)};
            w_interface <= in_interface;
            w_link <= in_link;
            w_wire_len <= in_wire_len;
            w_valid <= last;
            w_waits <= !last;
        end else if (beat && w_waits) begin
            w[2047:1024] <= data;
            w_cap <= 9'd128 + {1'b0, bytes_of(keep)};
            w_valid <= 1'b1;
            w_waits <= 1'b0;
        end
        if (rst) begin
            w_valid <= 1'b0;
            w_waits <= 1'b0;
        end
    end

    // ---- The link layer: where the network header begins, and what it is.
    function is_tag(input [15:0] t);
        is_tag = t == 16'h8100 || t == 16'h88a8 || t == 16'h9100;
    endfunction

    wire [15:0] type0 = `HALF(w, 12);
    wire [15:0] type1 = `HALF(w, 16);
    wire [15:0] type2 = `HALF(w, 20);
    wire once = is_tag(type0);
    wire twice = once && is_tag(type1);
    wire [15:0] ethertype = twice ? type2 : once ? type1 : type0;
    wire [8:0] link_len = twice ? 9'd22 : once ? 9'd18 : 9'd14;

    reg         l_valid, l_bad, l_software, l_v4, l_v6;
    reg [959:0] l;      // 120 bytes from the network header on
    reg [8:0]   l_cap;  // how many of them there are
    reg [31:0]  l_wire; // what the frame had on the wire from there on
    reg [15:0]  l_interface;
    reg [31:0]  l_wire_len;
    always @(posedge clk) begin
        l_valid <= w_valid && !rst;
        l_software <= w_link != 16'd1
            || (w_cap >= 9'd22 && twice && is_tag(type2))
            || (w_cap >= link_len && ethertype <= 16'd1500)
            || (w_cap >= link_len
                && (ethertype == 16'h8847 || ethertype == 16'h8848 || ethertype == 16'h8864));
        l_bad <= w_cap < 9'd14 || (once && w_cap < 9'd18) || (twice && w_cap < 9'd22);
        l_v4 <= ethertype == 16'h0800;
        l_v6 <= ethertype == 16'h86dd;
        l <= twice ? w[8*22 +: 960] : once ? w[8*18 +: 960] : w[8*14 +: 960];
        l_cap <= w_cap - link_len;
        l_wire <= w_wire_len - {23'd0, link_len};
        l_interface <= w_interface;
        l_wire_len <= w_wire_len;
    end

    // ---- The network layer. Lengths are the IP header's, and 0 means all that the frame has.
    wire [3:0]  version = l[7:4];
    wire [31:0] total4 = `HALF(l, 2) == 16'd0 ? l_wire : {16'd0, `HALF(l, 2)};
    wire [5:0]  header4 = {l[3:0], 2'b00};
    wire        bad4 = l_cap < 9'd20 || version != 4'd4 || header4 < 6'd20 || {26'd0, header4} > total4
                    || total4 > l_wire || l_cap < {3'd0, header4};
    wire [15:0] fragment = `HALF(l, 6);
    wire [7:0]  next6 = `BYTE(l, 6);
    wire [31:0] room6 = `HALF(l, 4) == 16'd0 && next6 != 8'd59 ? l_wire - 32'd40 : {16'd0, `HALF(l, 4)};
    wire        bad6 = l_cap < 9'd40 || version != 4'd6 || room6 > l_wire - 32'd40;
    // Hop-by-hop, routing, fragment, authentication, destination options.
    wire        extended6 = next6 == 8'd0 || next6 == 8'd43 || next6 == 8'd44 || next6 == 8'd51 || next6 == 8'd60;
    wire [5:0]  header_len = l_v4 ? header4 : 6'd40;
    wire [31:0] room = l_v4 ? total4 - {26'd0, header4} : room6;
    wire [8:0]  cap_behind = l_cap - {3'd0, header_len};

    reg         n_valid, n_bad, n_software, n_v4, n_v6, n_whole, n_later;
    reg [127:0] n_src, n_dst;
    reg [7:0]   n_protocol;
    reg [479:0] n;      // 60 bytes from the transport header on
    reg [8:0]   n_cap;  // how many of them there are inside the datagram
    reg [31:0]  n_room; // what the datagram had on the wire from there on
    reg [15:0]  n_interface;
    reg [31:0]  n_wire_len;
    always @(posedge clk) begin
        n_valid <= l_valid && !rst;
        n_bad <= l_bad || (l_v4 && bad4) || (l_v6 && bad6);
        n_software <= l_software || (l_v6 && !l_bad && !bad6 && extended6);
        n_v4 <= l_v4;
        n_v6 <= l_v6;
        n_src <= l_v4 ? {96'd0, `WORD(l, 12)} : {`WORD(l, 8), `WORD(l, 12), `WORD(l, 16), `WORD(l, 20)};
        n_dst <= l_v4 ? {96'd0, `WORD(l, 16)} : {`WORD(l, 24), `WORD(l, 28), `WORD(l, 32), `WORD(l, 36)};
        n_protocol <= l_v4 ? `BYTE(l, 9) : next6;
        n_whole <= l_v6 || fragment[13:0] == 14'd0;
        n_later <= l_v4 && fragment[12:0] != 13'd0;
        case (header_len[5:2])
            4'd5: n <= l[8*20 +: 480];
            4'd6: n <= l[8*24 +: 480];
            4'd7: n <= l[8*28 +: 480];
            4'd8: n <= l[8*32 +: 480];
            4'd9: n <= l[8*36 +: 480];
            4'd10: n <= l[8*40 +: 480];
            4'd11: n <= l[8*44 +: 480];
            4'd12: n <= l[8*48 +: 480];
            4'd13: n <= l[8*52 +: 480];
            4'd14: n <= l[8*56 +: 480];
            default: n <= l[8*60 +: 480];
        endcase
        n_cap <= {23'd0, cap_behind} > room ? room[8:0] : cap_behind;
        n_room <= room;
        n_interface <= l_interface;
        n_wire_len <= l_wire_len;
    end

    // ---- The transport layer.
    wire       is_ip = n_v4 || n_v6;
    wire       reads = is_ip && !n_later;
    wire       is_tcp = reads && n_protocol == 8'd6;
    wire       is_udp = reads && n_protocol == 8'd17;
    wire       is_sctp = reads && n_protocol == 8'd132;
    wire       is_icmp = reads && ((n_v4 && n_protocol == 8'd1) || (n_v6 && n_protocol == 8'd58));
    wire       is_gre = reads && n_protocol == 8'd47;
    wire [5:0] tcp_len = {n[8*12+4 +: 4], 2'b00};
    wire       bad_tcp = n_cap < 9'd20 || tcp_len < 6'd20 || {26'd0, tcp_len} > n_room;
    // Options that were cut off are read as far as they are there.
    wire [5:0] tcp_here = n_cap < {3'd0, tcp_len} ? n_cap[5:0] : tcp_len;
    wire [31:0] udp_len = n_v6 && `HALF(n, 4) == 16'd0 ? n_room : {16'd0, `HALF(n, 4)};
    wire       bad_udp = n_cap < 9'd8 || udp_len < 32'd8 || (n_whole && udp_len > n_room);
    // GRE is looked through where it is whole: what its flags announce must be there.
    wire [15:0] gre_flags = `HALF(n, 0);
    wire [15:0] gre_type = `HALF(n, 2);
    wire       gre_opens = gre_flags[14] == 1'b0 && gre_flags[2:0] == 3'd0
                        && (gre_type == 16'h0800 || gre_type == 16'h86dd || gre_type == 16'h6558);
    wire [8:0] gre_len = 9'd4 + {6'd0, gre_flags[15], 2'd0} + {6'd0, gre_flags[13], 2'd0} + {6'd0, gre_flags[12], 2'd0};
    wire       bad_gre = n_whole && (n_cap < 9'd4 || (gre_opens && n_cap < gre_len));
    wire [7:0] kind = `BYTE(n, 0);
    wire       is_query = n_v4 ? kind == 8'd0 || kind == 8'd8 || (kind >= 8'd13 && kind <= 8'd18)
                               : kind == 8'd128 || kind == 8'd129 || kind == 8'd139 || kind == 8'd140;
    wire [15:0] identifier = is_query ? `HALF(n, 4) : 16'd0;
    wire       has_ports = is_tcp || is_udp || is_sctp;

    reg         t_valid, t_bad, t_software, t_v4, t_v6, t_later, t_tcp, t_udp, t_icmp, t_sctp, t_query;
    reg [127:0] t_src, t_dst;
    reg [7:0]   t_protocol, t_type, t_flags;
    reg [15:0]  t_src_port, t_dst_port, t_window, t_interface;
    reg [31:0]  t_seq, t_ack, t_payload_len, t_wire_len;
    reg [319:0] t_options;
    reg [5:0]   t_options_len;
    always @(posedge clk) begin
        t_valid <= n_valid && !rst;
        t_bad <= n_bad || (is_tcp && bad_tcp) || (is_udp && bad_udp) || (is_sctp && n_cap < 9'd12)
              || (is_icmp && n_cap < 9'd8) || (is_gre && bad_gre);
        t_software <= n_software;
        t_v4 <= n_v4;
        t_v6 <= n_v6;
        t_later <= is_ip && n_later;
        t_tcp <= is_tcp;
        t_udp <= is_udp;
        t_icmp <= is_icmp;
        t_sctp <= is_sctp;
        t_query <= is_query;
        t_src <= n_src;
        t_dst <= n_dst;
        t_protocol <= n_protocol;
        t_type <= kind;
        t_src_port <= has_ports ? `HALF(n, 0) : is_icmp ? identifier : 16'd0;
        t_dst_port <= has_ports ? `HALF(n, 2) : is_icmp ? identifier : 16'd0;
        t_seq <= `WORD(n, 4);
        t_ack <= `WORD(n, 8);
        t_flags <= `BYTE(n, 13);
        t_window <= `HALF(n, 14);
        t_payload_len <= n_room - {26'd0, tcp_len};
        t_options <= n[8*20 +: 320];
        t_options_len <= is_tcp && !bad_tcp ? tcp_here - 6'd20 : 6'd0;
        t_interface <= n_interface;
        t_wire_len <= n_wire_len;
    end

    // ---- TCP options, while the rest waits.
    localparam OPTION_CYCLES = 9;
    tcp_options tcp_options (
        .clk(clk), .options(t_options), .len(t_options_len), .is_syn(t_flags[1]), .ack(t_ack),
        .has_scale(has_scale), .scale(scale), .sack_permitted(sack_permitted),
        .has_edge(has_edge), .edge_offset(edge_offset)
    );
    reg [OPTION_CYCLES-1:0] valids;
    always @(posedge clk) valids <= rst ? {OPTION_CYCLES{1'b0}} : {valids[OPTION_CYCLES-2:0], t_valid};
    assign valid = valids[OPTION_CYCLES-1];
    delay #(.WIDTH(482), .CYCLES(OPTION_CYCLES)) rest (
        .clk(clk),
        .in({t_bad, t_software, t_v4, t_v6, t_later, t_tcp, t_udp, t_icmp, t_sctp, t_query, t_src, t_dst, t_protocol,
             t_type, t_flags, t_src_port, t_dst_port, t_window, t_interface, t_seq, t_ack, t_payload_len, t_wire_len}),
        .out({bad, software, v4, v6, later, tcp, udp, icmp, sctp, icmp_query, src, dst, protocol,
              icmp_type, flags, src_port, dst_port, window, interface_id, seq, ack, payload_len, wire_len})
    );
`undef BYTE
`undef HALF
`undef WORD
endmodule
