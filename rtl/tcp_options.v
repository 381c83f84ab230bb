// Walks the options of a TCP header, up to 40 bytes, five positions in a cycle: what nine cycles later it says is what
// crates/packet finds. Every position asks whether the next option begins there.
module tcp_options (
    input  wire         clk,
    input  wire [319:0] options,
    input  wire [5:0]   len,
    input  wire         is_syn,
    input  wire [31:0]  ack,
    output reg          has_scale,
    output reg  [3:0]   scale,
    output reg          sack_permitted,
    output reg          has_edge,
    output reg  [31:0]  edge_offset
);
    localparam STAGES = 8;
    localparam STEP = 5;
    // What the walk knows: the next option's place, whether it has ended, what it has found.
    localparam KNOWN = 6 + 1 + 1 + 4 + 1 + 6 + 3;
    localparam CARRIED = 320 + 6 + 1 + 32;

    wire [KNOWN-1:0]   known [0:STAGES];
    wire [CARRIED-1:0] carried [0:STAGES];
    assign known[0] = {KNOWN{1'b0}};
    assign carried[0] = {options, len, is_syn, ack};

    genvar s;
    generate
        for (s = 0; s < STAGES; s = s + 1) begin : stage
            wire [319:0] o;
            wire [5:0]   end_at;
            wire         syn;
            wire [31:0]  unused_ack;
            assign {o, end_at, syn, unused_ack} = carried[s];

            reg [5:0] next;
            reg       done, scaled, sack;
            reg [3:0] shift;
            reg [5:0] blocks_at;
            reg [2:0] blocks;
            reg [7:0] option_kind, option_len, third;
            reg [8:0] behind;
            reg [5:0] option_blocks; // counted in bytes
            integer i, at;
            always @* begin
                {next, done, scaled, shift, sack, blocks_at, blocks} = known[s];
                option_kind = 8'd0;
                option_len = 8'd0;
                third = 8'd0;
                behind = 9'd0;
                option_blocks = 6'd0;
                for (i = 0; i < STEP; i = i + 1) begin
                    at = s * STEP + i;
                    option_kind = o[8*at +: 8];
                    option_len = at + 1 < 40 ? o[8*((at + 1) % 40) +: 8] : 8'd0;
                    third = at + 2 < 40 ? o[8*((at + 2) % 40) +: 8] : 8'd0;
                    behind = at[8:0] + {1'b0, option_len};
                    option_blocks = option_len[5:0] - 6'd2;
                    if (!done && next == at[5:0] && at[5:0] < end_at) begin
                        if (option_kind == 8'd0) done = 1'b1;
                        else if (option_kind == 8'd1) next = at[5:0] + 6'd1;
                        else if (at[5:0] + 6'd1 >= end_at || option_len < 8'd2 || behind > {3'd0, end_at}) begin
                            // It ends nowhere: the segment counts with those in front of it.
                            done = 1'b1;
                        end else begin
                            next = behind[5:0];
                            // What only a SYN may carry is ignored elsewhere, and so is a length that an option can't have.
                            if (syn && option_kind == 8'd3 && option_len == 8'd3) begin
                                scaled = 1'b1;
`ifdef FAULT_OPTION
                                shift = third[3:0];
`else
                                shift = third > 8'd14 ? 4'd14 : third[3:0];
`endif
                            end
                            if (syn && option_kind == 8'd4 && option_len == 8'd2) sack = 1'b1;
                            if (option_kind == 8'd5 && option_len >= 8'd10) begin
                                blocks_at = at[5:0];
                                blocks = option_blocks[5:3];
                            end
                        end
                    end
                end
            end

            reg [KNOWN-1:0]   found;
            reg [CARRIED-1:0] kept;
            always @(posedge clk) begin
                found <= {next, done, scaled, shift, sack, blocks_at, blocks};
                kept <= carried[s];
            end
            assign known[s+1] = found;
            assign carried[s+1] = kept;
        end
    endgenerate

    wire [5:0]   unused_next, unused_end, blocks_at;
    wire         unused_done, scaled, sack, unused_syn;
    wire [3:0]   shift;
    wire [2:0]   blocks;
    wire [319:0] o;
    wire [31:0]  at_ack;
    assign {unused_next, unused_done, scaled, shift, sack, blocks_at, blocks} = known[STAGES];
    assign {o, unused_end, unused_syn, at_ack} = carried[STAGES];

    // The highest right edge of up to four blocks, as far as it lies behind the acknowledgement number.
    wire [319:0] blocks_first = o >> {blocks_at, 3'b000};
    function [31:0] offset_of(input [319:0] b, input integer i, input [31:0] from);
        offset_of = {b[8*(8*i+6) +: 8], b[8*(8*i+7) +: 8], b[8*(8*i+8) +: 8], b[8*(8*i+9) +: 8]} - from;
    endfunction
    wire signed [31:0] edge0 = offset_of(blocks_first, 0, at_ack);
    wire signed [31:0] edge1 = offset_of(blocks_first, 1, at_ack);
    wire signed [31:0] edge2 = offset_of(blocks_first, 2, at_ack);
    wire signed [31:0] edge3 = offset_of(blocks_first, 3, at_ack);
    wire signed [31:0] high01 = blocks > 3'd1 && edge1 > edge0 ? edge1 : edge0;
    wire signed [31:0] high23 = blocks > 3'd3 && edge3 > edge2 ? edge3 : edge2;
    wire signed [31:0] high = blocks > 3'd2 && high23 > high01 ? high23 : high01;

    always @(posedge clk) begin
        has_scale <= scaled;
        scale <= shift;
        sack_permitted <= sack;
        has_edge <= blocks != 3'd0;
        edge_offset <= high;
    end
endmodule
