// The records: what the function remembers of a packet, in the wire form of docs/decisions/0008-carriers.md, one cycle
// behind the parser. FUNCTION:
//
//   0  none: the wire length and the interface, for odd wire lengths; to try the rest without a parser in the way
//   1  ddos           3  policer, per five-tuple    7  policer, per source
//   2  heavy-hitter   4  port-knock                 8  policer, per destination
//   5  conntrack, firewall                          6  nat
//
// `step` says that the packet takes a step, `software` that only software can tell: the parser doesn't read what it is, or
// it is an ICMP error and the record would be about the packet that it quotes.
module records #(
    parameter FUNCTION = 0,
    parameter RECORD_BYTES = 6,
    // nat: the inside prefixes as bits and mask, and the external address.
    parameter [191:0] INSIDE = {32'h0a000000, 32'hff000000, 32'hac100000, 32'hfff00000, 32'hc0a80000, 32'hffff0000},
    parameter [31:0] EXTERNAL = 32'hcb007101
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      beat,
    input  wire                      first,
    input  wire                      last,
    input  wire [1023:0]             data,
    input  wire [127:0]              keep,
    input  wire [15:0]               in_interface,
    input  wire [15:0]               in_link,
    input  wire [31:0]               in_wire_len,
    output reg                       valid,
    output reg                       step,
    output reg                       software,
    output reg  [RECORD_BYTES*8-1:0] record
);
    wire h_valid, bad, h_software, v4, v6, later, tcp, udp, icmp, sctp, icmp_query;
    wire [127:0] src, dst;
    wire [7:0] protocol, icmp_type, flags;
    wire [15:0] src_port, dst_port, window, interface_id;
    wire [31:0] seq, ack, payload_len, edge_offset, wire_len;
    wire has_scale, sack_permitted, has_edge;
    wire [3:0] scale;
    headers headers (
        .clk(clk), .rst(rst), .beat(beat), .first(first), .last(last), .data(data), .keep(keep),
        .in_interface(in_interface), .in_link(in_link), .in_wire_len(in_wire_len),
        .valid(h_valid), .bad(bad), .software(h_software), .v4(v4), .v6(v6), .later(later), .src(src), .dst(dst),
        .protocol(protocol), .tcp(tcp), .udp(udp), .icmp(icmp), .sctp(sctp), .src_port(src_port), .dst_port(dst_port),
        .icmp_type(icmp_type), .icmp_query(icmp_query), .flags(flags), .seq(seq), .ack(ack), .window(window),
        .payload_len(payload_len), .has_scale(has_scale), .scale(scale), .sack_permitted(sack_permitted),
        .has_edge(has_edge), .edge_offset(edge_offset), .interface_id(interface_id), .wire_len(wire_len)
    );

    // An address takes sixteen bytes; zeros fill the room behind one of IPv4.
    function [127:0] address(input is_v6, input [127:0] a);
        address = is_v6 ? a : {a[31:0], 96'd0};
    endfunction

    wire is_ip = (v4 || v6) && !bad;
    wire [7:0] family = {7'd0, v6};
    wire [127:0] src_bytes = address(v6, src);
    wire [127:0] dst_bytes = address(v6, dst);

    wire takes, leaves;
    wire [RECORD_BYTES*8-1:0] made;
    generate
        if (FUNCTION == 1) begin : ddos
            assign takes = is_ip;
            assign leaves = h_software;
            assign made = {family, src_bytes};
        end else if (FUNCTION == 2 || FUNCTION == 3) begin : tuple
            assign takes = is_ip && !later;
            assign leaves = h_software;
            assign made = {family, src_bytes, dst_bytes, src_port, dst_port, protocol, wire_len};
        end else if (FUNCTION == 7) begin : per_source
            assign takes = is_ip;
            assign leaves = h_software;
            assign made = {family, src_bytes, 168'd0, wire_len};
        end else if (FUNCTION == 8) begin : per_destination
            assign takes = is_ip;
            assign leaves = h_software;
            assign made = {family, 128'd0, dst_bytes, 40'd0, wire_len};
        end else if (FUNCTION == 4) begin : port_knock
            assign takes = is_ip && (tcp || (later && protocol == 8'd6));
            assign leaves = h_software;
            assign made = {6'd0, tcp, v6, src_bytes, tcp ? dst_port : 16'd0};
        end else if (FUNCTION == 5) begin : connection
            connection of_packet (
                .is_ip(is_ip), .v4(v4), .v6(v6), .later(later), .src(src), .dst(dst), .src_bytes(src_bytes),
                .dst_bytes(dst_bytes), .protocol(protocol), .tcp(tcp), .udp(udp), .icmp(icmp), .src_port(src_port),
                .dst_port(dst_port), .icmp_type(icmp_type), .icmp_query(icmp_query), .flags(flags), .seq(seq), .ack(ack),
                .window(window), .payload_len(payload_len), .has_scale(has_scale), .scale(scale),
                .sack_permitted(sack_permitted), .has_edge(has_edge), .edge_offset(edge_offset),
                .interface_id(interface_id), .h_software(h_software), .takes(takes), .software(leaves), .record(made)
            );
        end else if (FUNCTION == 6) begin : translation
            function is_inside(input [31:0] a);
                is_inside = (a & INSIDE[159:128]) == INSIDE[191:160] || (a & INSIDE[95:64]) == INSIDE[127:96]
                         || (a & INSIDE[31:0]) == INSIDE[63:32];
            endfunction
            wire from_inside = is_inside(src[31:0]);
            wire to_inside = is_inside(dst[31:0]);
            wire to_external = dst[31:0] == EXTERNAL;
            wire unicast = dst[31:28] != 4'he && dst[31:0] != 32'hffffffff;
            wire translated = to_external || (from_inside && !to_inside && unicast);
            wire [1:0] way = !from_inside ? 2'd1 : to_external ? 2'd2 : 2'd0;
            wire request = icmp_type == 8'd8 || icmp_type == 8'd13 || icmp_type == 8'd15 || icmp_type == 8'd17;
            wire [5:0] content = tcp ? 6'd0 : udp ? 6'd1 : request ? 6'd3 : 6'd2;
            wire is_error = icmp_type == 8'd3 || icmp_type == 8'd4 || icmp_type == 8'd11 || icmp_type == 8'd12;
            assign takes = is_ip && v4 && !later && translated && (tcp || udp || (icmp && icmp_query));
            assign leaves = h_software || (is_ip && v4 && icmp && is_error);
            assign made = {content, way, src[31:0], src_port, dst[31:0], dst_port, tcp ? flags : 8'd0, 88'd0};
        end else begin : none
            assign takes = wire_len[0];
            assign leaves = 1'b0;
            assign made = {wire_len, interface_id};
        end
    endgenerate

    always @(posedge clk) begin
        valid <= h_valid && !rst;
        step <= takes && !leaves;
        software <= leaves;
        record <= takes && !leaves ? made : {RECORD_BYTES*8{1'b0}};
    end
endmodule
