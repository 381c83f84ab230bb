// A first-in first-out buffer of 2^DEPTH_LOG2 words in distributed memory. What is written can be read in the next cycle.
module fifo #(
    parameter WIDTH = 8,
    parameter DEPTH_LOG2 = 5
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             in_valid,
    output wire             in_ready,
    input  wire [WIDTH-1:0] in,
    output wire             out_valid,
    input  wire             out_ready,
    output wire [WIDTH-1:0] out
);
    (* ram_style = "distributed" *)
    reg [WIDTH-1:0] memory [0:(1<<DEPTH_LOG2)-1];
    // One bit more than an address, so that full and empty differ.
    reg [DEPTH_LOG2:0] head;
    reg [DEPTH_LOG2:0] tail;

    assign in_ready = (head ^ tail) != {1'b1, {DEPTH_LOG2{1'b0}}};
    assign out_valid = head != tail;
    assign out = memory[tail[DEPTH_LOG2-1:0]];

    always @(posedge clk) begin
        if (in_valid && in_ready) memory[head[DEPTH_LOG2-1:0]] <= in;
        if (rst) begin
            head <= 0;
            tail <= 0;
        end else begin
            if (in_valid && in_ready) head <= head + 1'b1;
            if (out_valid && out_ready) tail <= tail + 1'b1;
        end
    end
endmodule
