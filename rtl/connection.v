// The record of connection tracking: the symmetric five-tuple, who sent, and what the packet does. The segment's fields are
// those of crates/functions/src/tracking/tcp/segment.rs.
module connection (
    input  wire         is_ip,
    input  wire         v4,
    input  wire         v6,
    input  wire         later,
    input  wire [127:0] src,
    input  wire [127:0] dst,
    input  wire [127:0] src_bytes,
    input  wire [127:0] dst_bytes,
    input  wire [7:0]   protocol,
    input  wire         tcp,
    input  wire         udp,
    input  wire         icmp,
    input  wire [15:0]  src_port,
    input  wire [15:0]  dst_port,
    input  wire [7:0]   icmp_type,
    input  wire         icmp_query,
    input  wire [7:0]   flags,
    input  wire [31:0]  seq,
    input  wire [31:0]  ack,
    input  wire [15:0]  window,
    input  wire [31:0]  payload_len,
    input  wire         has_scale,
    input  wire [3:0]   scale,
    input  wire         sack_permitted,
    input  wire         has_edge,
    input  wire [31:0]  edge_offset,
    input  wire [15:0]  interface_id,
    input  wire         h_software,
    output wire         takes,
    output wire         software,
    output wire [479:0] record
);
    // The smaller endpoint comes first: by address, then by port.
`ifdef FAULT_ORDER
    wire from_first = src <= dst;
`else
    wire from_first = src < dst || (src == dst && src_port <= dst_port);
`endif
    wire [295:0] ends = {
        from_first ? {src_bytes, dst_bytes, src_port, dst_port} : {dst_bytes, src_bytes, dst_port, src_port}, protocol
    };

    // What a segment says, by FIN, SYN, RST, ACK and URG; PSH goes with anything.
    wire fin = flags[0], syn = flags[1], rst = flags[2], has_ack = flags[4], urg = flags[5];
    reg [2:0] says;
    reg sound;
    always @* begin
        sound = 1'b1;
        says = 3'd0;
        casez ({urg, has_ack, rst, syn, fin})
            5'b?0010: says = 3'd0; // SYN
            5'b01010: says = 3'd1; // SYN and ACK
            5'b?1001: says = 3'd2; // FIN
            5'b?1000: says = 3'd3; // ACK
            5'b0?100: says = 3'd4; // RST
            default: sound = 1'b0;
        endcase
    end
    wire [31:0] behind = seq + payload_len + {31'd0, syn} + {31'd0, fin};
    // Only what lies behind the acknowledgement number counts.
    wire [31:0] sack = has_edge && $signed(edge_offset) > 0 ? ack + edge_offset : ack;
    wire [159:0] segment = {
        seq, behind, ack, sack, window, 5'd0, says, 1'b0, has_ack, sack_permitted, has_scale, scale
    };

    // Echo, timestamp, information, address mask, in this order; a reply is the even number of IPv4's. Of IPv6 echo and node information.
    wire is_reply = v4 ? icmp_type == 8'd0 || (icmp_type != 8'd8 && !icmp_type[0])
                       : icmp_type == 8'd129 || icmp_type == 8'd140;
    wire [7:0] pair = (icmp_type + 8'd1) >> 1;
    wire [1:0] query = v4 && icmp_type >= 8'd13 ? pair[1:0] + 2'd2 : !v4 && icmp_type >= 8'd139 ? 2'd1 : 2'd0;
    wire is_error = v4 ? icmp_type == 8'd3 || icmp_type == 8'd4 || icmp_type == 8'd5 || icmp_type == 8'd11 || icmp_type == 8'd12
                       : !icmp_type[7];

    wire [5:0] event_number = tcp ? 6'd0 : udp ? 6'd1 : !icmp ? 6'd5 : is_reply ? 6'd3 : 6'd2;
    wire [159:0] detail = tcp ? segment : icmp ? {6'd0, query, 152'd0} : 160'd0;
    assign takes = is_ip && !later && (tcp ? sound : !icmp || icmp_query);
    assign software = h_software || (is_ip && icmp && is_error);
    assign record = {event_number, from_first, v6, ends, interface_id, detail};
endmodule
