module records #(
    parameter FUNCTION = 0,
    parameter RECORD_BYTES = 6
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
    wire takes, needs_software;
    wire [RECORD_BYTES*8-1:0] made;
    generate
      if (1) begin
            assign takes = wire_len[0];
            assign needs_software = 1'b0;
            assign made = {wire_len, interface_id};
        end
    endgenerate

    always @(posedge clk) begin
        valid <= h_valid && !rst;
        step <= takes && !needs_software;
        software <= needs_software;
        record <= takes && !needs_software ? made : {RECORD_BYTES*8{1'b0}};
    end
endmodule
